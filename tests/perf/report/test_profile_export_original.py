"""What a profile export holds of requests and responses is what perf_analyzer itself writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from naiad.perf.report.profile_export import write_profile_export
from naiad.testing import RunningServer, serving
from support.perf_analyzer import found_tool, run
from support.perf_runs import measure
from support.served_models import identity, write_model

pytestmark = pytest.mark.slow

MODELS = {
    "ints": ("TYPE_INT32", "3", [1, -2, 3]),
    "one": ("TYPE_FP32", "1", [2.5]),
    "doubles": ("TYPE_FP64", "2", [0.1, 1e300]),
    "text": ("TYPE_STRING", "1", ["hello"]),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    found_tool()
    folder = tmp_path_factory.mktemp("exports")
    for name, (kind, dims, _) in MODELS.items():
        write_model(folder / "models", name, identity(kind, dims, max_batch_size=8))
    with serving(folder / "log", "--model-repository", folder / "models") as running:
        yield running


def first_request(file: Path) -> dict[str, Any]:
    found = json.loads(file.read_text())
    assert list(found) == ["experiments", "version", "service_kind", "endpoint"]
    assert (found["service_kind"], found["endpoint"]) == ("triton", "")
    request: dict[str, Any] = found["experiments"][0]["requests"][0]
    return {name: value for name, value in request.items() if "timestamp" not in name}


@pytest.mark.parametrize(
    ("name", "words"),
    [("ints", ()), ("one", ("--output-tensor-format", "json")), ("doubles", ("-i", "grpc")), ("text", ("-i", "grpc"))],
)
def test_inputs_and_outputs(server: RunningServer, tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"INPUT0": MODELS[name][2]}]}))
    theirs, ours = tmp_path / "theirs.json", tmp_path / "ours.json"
    url = server.grpc_url if "grpc" in words else server.url
    # The original fails if all its requests are over before it has asked for the statistics at their beginning.
    given = ["-m", name, "-u", url, *words, "--input-data", str(data), "--request-count", "1000"]
    run([found_tool(), *given, "--profile-export-file", str(theirs)])
    write_profile_export(measure(*given, "--profile-export-file", ours), ours)
    assert first_request(ours) == first_request(theirs)
