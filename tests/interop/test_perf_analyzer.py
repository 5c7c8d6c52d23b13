"""The official load generator: ``NAIAD_PERF_ANALYZER`` names it, or it is on the path. ``scripts/test`` installs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from naiad.testing import RunningServer, serving
from support.perf_analyzer import REQUEST_COUNT, found_tool, run, successes
from support.python_models import DOUBLES, write_python_model

REQUESTS = 2000
CALLERS = 4


@pytest.fixture(scope="module")
def tool() -> str:
    return found_tool()


def analyze(tool: str, server: RunningServer, model: str, *arguments: str, protocol: str = "grpc") -> None:
    """Let it send its requests, four at a time where nothing else is said; all of them must succeed."""
    before = server.statistics(model)
    url = server.grpc_url if protocol == "grpc" else server.url
    fixed = ("-m", model, "-u", url, "-i", protocol, "--request-count", str(REQUESTS))
    pace = () if "--request-rate-range" in arguments else ("--concurrency-range", str(CALLERS))
    printed = run([tool, *fixed, *pace, *arguments])
    counted = REQUEST_COUNT.search(printed)
    assert counted, printed
    # It may leave out what each caller has under way as the measurement ends.
    assert int(counted[1]) >= REQUESTS - CALLERS, printed
    after = server.statistics(model)
    assert successes(after) - successes(before) >= REQUESTS
    assert after["inference_stats"]["fail"] == before["inference_stats"]["fail"]


WAYS = {
    "sync": ("--sync",),
    "async": ("--async",),
    "streaming": ("--async", "--streaming"),
    "gzip": ("--async", "--grpc-compression-algorithm", "gzip"),
    "deflate": ("--async", "--streaming", "--grpc-compression-algorithm", "deflate"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_whose_shape_is_given(tool: str, server: RunningServer, way: str) -> None:
    analyze(tool, server, "id_FP32", "--shape", "INPUT0:64", *WAYS[way])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sync", "async", "streaming"])
def test_batches(tool: str, server: RunningServer, way: str) -> None:
    analyze(tool, server, "sum", "-b", "2", *WAYS[way])


@pytest.mark.slow
def test_strings(tool: str, server: RunningServer) -> None:
    analyze(tool, server, "id_BYTES", "--shape", "INPUT0:3", "--string-length", "20", "--async")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sync", "streaming"])
def test_answers_are_what_it_expects(tool: str, server: RunningServer, tmp_path: Path, way: str) -> None:
    """It compares the outputs with those in a file."""
    rows = [[float(i), -0.5, 3e38] for i in range(10)]
    data = {
        "data": [{"INPUT0": {"content": row, "shape": [3]}} for row in rows],
        "validation_data": [{"OUTPUT0": {"content": row, "shape": [3]}} for row in rows],
    }
    file = tmp_path / "data.json"
    file.write_text(json.dumps(data))
    analyze(tool, server, "fixed", "--input-data", str(file), *WAYS[way])


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_shared_memory(tool: str, tmp_path: Path, protocol: str) -> None:
    """Its inputs and outputs lie in regions that it registers itself."""
    write_python_model(tmp_path / "models", "doubles", DOUBLES)
    options = ("--model-repository", tmp_path / "models", "--allow-client-shm=true")
    with serving(tmp_path / "log", *options) as server:
        url = server.grpc_url if protocol == "grpc" else server.url
        load = ("--request-count", "300", "--concurrency-range", "4", "--shape", "X:30000")
        shared = ("--shared-memory", "system", "--output-shared-memory-size", "120000")
        run([tool, "-m", "doubles", "-u", url, "-i", protocol, *load, *shared])
        found = server.statistics("doubles")
        assert successes(found) >= 300
        assert found["inference_stats"]["fail"]["count"] == 0
        assert server.get("/v2/systemsharedmemory/status").json() == []


FORMATS = ("binary", "json")
RATE = ("--request-rate-range", "1000")


@pytest.mark.slow
@pytest.mark.parametrize("inputs", FORMATS)
@pytest.mark.parametrize("outputs", FORMATS)
def test_formats_of_tensors_over_http(tool: str, server: RunningServer, inputs: str, outputs: str) -> None:
    formats = ("--input-tensor-format", inputs, "--output-tensor-format", outputs)
    analyze(tool, server, "id_FP32", "--shape", "INPUT0:64", "--async", *formats, protocol="http")


@pytest.mark.slow
@pytest.mark.parametrize("inputs", FORMATS)
def test_strings_over_http(tool: str, server: RunningServer, inputs: str) -> None:
    given = ("--shape", "INPUT0:3", "--string-length", "20", "--input-tensor-format", inputs)
    analyze(tool, server, "id_BYTES", *given, "--async", protocol="http")


@pytest.mark.slow
def test_batches_over_http(tool: str, server: RunningServer) -> None:
    analyze(tool, server, "sum", "-b", "2", "--sync", protocol="http")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["async", "streaming"])
def test_a_rate_of_requests(tool: str, server: RunningServer, way: str) -> None:
    analyze(tool, server, "sum", "-b", "1", *RATE, *WAYS[way])


@pytest.mark.slow
def test_a_rate_of_requests_over_http(tool: str, server: RunningServer) -> None:
    analyze(tool, server, "sum", "-b", "1", *RATE, "--async", protocol="http")
