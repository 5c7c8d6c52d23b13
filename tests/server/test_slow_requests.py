"""The slow requests of a real server, as its API shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.testing import serving
from support.served_models import identity, write_model


@pytest.mark.slow
def test_a_model_without_slow_requests_is_not_one_that_is_not_there(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "inline", identity())
    with serving(tmp_path / "log", tmp_path / "models", "--slow-requests=10") as server:
        assert server.get("/v2/traces/slow").json() == {"slow_requests": []}
        assert server.get("/v2/models/inline/traces/slow").json() == {"slow_requests": []}
        answer = server.get("/v2/models/inlin/traces/slow")
    assert (answer.status, answer.json()) == (404, {"error": "Request for unknown model: 'inlin' is not found"})


@pytest.mark.slow
def test_names_in_namespaces_have_slow_requests(tmp_path: Path) -> None:
    for repository in ("one", "two"):
        write_model(tmp_path / repository, "inline", identity())
    options = (f"--model-repository={tmp_path / 'two'}", "--model-namespacing=true", "--slow-requests=10")
    with serving(tmp_path / "log", tmp_path / "one", *options) as server:
        assert server.get("/v2/models/inline/traces/slow").status == 200
