"""Requests as they were sent to the reference server, and what it answered.

``cases/*.json`` hold them in the order they were sent. A recorded answer that blames the server for a malformed
request (500) stands there as ``malformed``: here it is 400 with a text of our own. ``meant.json`` lists the answers
that differ on purpose, with the reason; each is a row of docs/compatibility.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.recorded_models import FRONT_ENDS, write_repository
from conformance.replay_http import assert_answer, load, send
from naiad.testing import RunningServer, serving

HERE = Path(__file__).parent
GROUPS = ("describe", "paths", "infer", "binary", "bad", "types", "classes", "coding", "wide", "metrics")

CASES = [(group, case) for group in GROUPS for case in load(group)]
MEANT: dict[str, dict[str, Any]] = json.loads((HERE / "meant.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=FRONT_ENDS)
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("recorded")
    write_repository(folder / "models")
    options = ("--model-repository", folder / "models", "--disable-auto-complete-config")
    with serving(folder / "log", *options, "--frontend-processes", request.param) as running:
        yield running


@pytest.mark.parametrize(("group", "case"), [pytest.param(g, c, id=c["name"]) for g, c in CASES])
def test_answer_is_the_recorded_one(server: RunningServer, group: str, case: dict[str, Any]) -> None:
    port = server.metrics if group == "metrics" else 0
    assert_answer(send(server, case, port), MEANT.get(case["name"], case)["expect"])


def test_every_meant_difference_is_of_a_recorded_case_and_documented() -> None:
    names = {case["name"] for _, case in CASES}
    page = (HERE.parent.parent / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for name, difference in MEANT.items():
        assert name in names
        assert f"| {difference['row']} |" in page, name
