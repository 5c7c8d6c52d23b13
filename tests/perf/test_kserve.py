"""Runs against a real server, over HTTP, gRPC and streams: its models, its counts, its sequences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.perf.report.profile_export import write_profile_export
from naiad.perf.results import LoadMode
from naiad.perf.target.protocol import TargetError
from naiad.testing import RunningServer, serving
from support.perf_runs import measure, measure_level, run_command, windows
from support.served_ensembles import step, write_ensemble
from support.served_models import identity, tensor, write_model

PROTOCOLS = ("http", "grpc", "stream")
CONTROL = (
    'control_input [ {{ name: "{name}" control [ {{ kind: CONTROL_SEQUENCE_{name} int32_false_true: [ 0, 1 ] }} ] }} ]'
)
TOTALS = f"""
    backend: "sequence" max_batch_size: 4
    input [ {tensor("INPUT", "TYPE_INT32", "1")} ] output [ {tensor("OUTPUT", "TYPE_INT32", "1")} ]
    sequence_batching {{ {CONTROL.format(name="START")} {CONTROL.format(name="READY")} }}
    instance_group [ {{ kind: KIND_CPU count: 1 }} ]"""
REPEAT = f"""
    backend: "repeat"
    input [ {tensor("IN", "TYPE_INT32", "-1")}, {tensor("DELAY", "TYPE_UINT32", "-1")},
            {tensor("WAIT", "TYPE_UINT32", "1")} ]
    output [ {tensor("OUT", "TYPE_INT32", "1")}, {tensor("IDX", "TYPE_UINT32", "1")} ]
    model_transaction_policy {{ decoupled: true }}"""
CACHED = "response_cache { enable: true }"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("kserve")
    models = folder / "models"
    write_model(models, "id", identity("TYPE_FP32", "16", max_batch_size=8))
    write_model(models, "large", identity("TYPE_FP32", "150000", max_batch_size=8))
    write_model(models, "slow", identity("TYPE_INT32", "4", max_batch_size=8, delay_ms=5))
    write_model(models, "text", identity("TYPE_STRING", "2", max_batch_size=8))
    write_model(models, "cached", identity("TYPE_INT32", "4", max_batch_size=8, extra=CACHED))
    write_model(models, "any", identity("TYPE_INT32", "-1", max_batch_size=8))
    write_model(models, "totals", TOTALS)
    write_model(models, "repeat", REPEAT)
    write_ensemble(
        models,
        "chain",
        step("any", {"INPUT0": "IN"}, {"OUTPUT0": "MID"}),
        step("any", {"INPUT0": "MID"}, {"OUTPUT0": "OUT"}),
    )
    words = ("--cache-config", "local,size=1048576", "--trace-config", f"triton,file={folder / 'trace.json'}")
    with serving(folder / "log", "--model-repository", models, *words) as running:
        yield running


def target(server: RunningServer, protocol: str) -> tuple[object, ...]:
    """The options that reach the server."""
    if protocol == "http":
        return ("-u", server.url)
    return ("-u", server.grpc_url, "-i", "grpc", *(["--streaming"] if protocol == "stream" else []))


def write_json(folder: Path, content: object) -> Path:
    file = folder / "data.json"
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("concurrency", [1, 40])
def test_requests_are_answered_and_counted(server: RunningServer, protocol: str, concurrency: int) -> None:
    words = ("-m", "id", "--request-count", 400, "--concurrency-range", concurrency)
    level = measure_level(*words, *target(server, protocol))
    merged = level.merged
    assert (merged.requests, merged.responses, merged.sent, dict(merged.errors)) == (400, 400, 400, {})
    assert merged.server is not None
    assert (merged.server.model, merged.server.successes, merged.server.inferences) == ("id", 400, 400)
    assert merged.server.compute_infer_ns > 0
    assert 0 < merged.send_ns + merged.receive_ns < merged.latency.total


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_large_requests_arrive_whole(server: RunningServer, protocol: str) -> None:
    level = measure_level("-m", "large", "--request-count", 40, "--concurrency-range", 3, *target(server, protocol))
    assert (level.merged.requests, dict(level.merged.errors)) == (40, {})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_batches_count_as_many_inferences(server: RunningServer, protocol: str) -> None:
    level = measure_level("-m", "id", "-b", 8, "--request-count", 20, *target(server, protocol))
    assert level.merged.server is not None
    assert level.merged.server.inferences == 160
    assert level.inference_rate == pytest.approx(8 * level.merged.request_rate)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_schedule_is_kept(server: RunningServer, protocol: str) -> None:
    level = measure_level("-m", "id", "--request-rate-range", 200, "--request-count", 200, *target(server, protocol))
    assert level.merged.requests == 200
    assert level.level.mode is LoadMode.REQUEST_RATE
    assert level.merged.send_delay.count == 200


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_outputs_are_compared(server: RunningServer, tmp_path: Path, protocol: str) -> None:
    def run(expected: list[int]) -> dict[tuple[str, str], int]:
        rows = [{"INPUT0": [1, 2, 3, 4]}, {"INPUT0": [5, 6, 7, 8]}]
        outputs = [{"OUTPUT0": [1, 2, 3, 4]}, {"OUTPUT0": expected}]
        file = write_json(tmp_path, {"data": rows, "validation_data": outputs})
        words = ("-m", "slow", "--request-count", 10, "--input-data", file)
        return dict(measure_level(*words, *target(server, protocol)).merged.errors)

    assert run([5, 6, 7, 8]) == {}
    ((kind, cause),) = run([5, 6, 0, 8])
    assert kind == "wrong output"
    assert "element [0,2] is 7, expected 0" in cause


@pytest.mark.parametrize("words", [("--input-tensor-format", "json"), ("--output-tensor-format", "json")])
@pytest.mark.parametrize("model", ["slow", "text"])
def test_tensors_as_json(server: RunningServer, words: tuple[str, ...], model: str) -> None:
    level = measure_level("-m", model, "--request-count", 10, *words, *target(server, "http"))
    assert dict(level.merged.errors) == {}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sequences_begin_end_and_keep_their_order(server: RunningServer, tmp_path: Path, protocol: str) -> None:
    # The model adds up, so an output is right only if all steps before it came first, and none of another sequence.
    rows = [[{"INPUT": [1]}, {"INPUT": [2]}, {"INPUT": [3]}, {"INPUT": [4]}]]
    outputs = [[{"OUTPUT": [1]}, {"OUTPUT": [3]}, {"OUTPUT": [6]}, {"OUTPUT": [10]}]]
    file = write_json(tmp_path, {"data": rows, "validation_data": outputs})
    given = ("-m", "totals", "--input-data", file, *target(server, protocol))
    for load in (
        ("--concurrency-range", 3, "--request-count", 120),
        ("--request-rate-range", 120, "--num-of-sequences", 4, "--request-count", 120),
    ):
        level = measure_level(*given, *load)
        assert (level.merged.requests, dict(level.merged.errors)) == (120, {})
        assert level.merged.sequences >= 24


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sequences_of_random_data(server: RunningServer, protocol: str) -> None:
    words = ("--sequence-length", 5, "--sequence-id-range", "7:30", "--concurrency-range", 4, *windows(200))
    level = measure_level("-m", "totals", *words, *target(server, protocol))
    assert dict(level.merged.errors) == {}
    assert level.merged.sequences > 0


def test_decoupled_responses(server: RunningServer, tmp_path: Path) -> None:
    file = write_json(tmp_path, {"data": [{"IN": [1, 2, 3], "DELAY": [0, 20, 20], "WAIT": [1]}]})
    shapes = ("--shape", "IN:3", "--shape", "DELAY:3")
    words = ("-m", "repeat", "--input-data", file, *shapes, "--request-count", 8, "--concurrency-range", 2)
    level = measure_level(*words, *target(server, "stream"))
    merged = level.merged
    assert (merged.requests, merged.responses, dict(merged.errors)) == (8, 24, {})
    assert (merged.first_response.count, merged.between_responses.count) == (8, 16)
    # The third response comes 40 ms after the first one, and the final one, which is empty, right after it. The
    # server's timers may be a little early.
    assert merged.latency.least >= 38e6 > merged.first_response.least
    assert merged.between_responses.percentile(50) >= 19e6


@pytest.mark.slow
def test_periodic_concurrency(server: RunningServer, tmp_path: Path) -> None:
    file = write_json(tmp_path, {"data": [{"IN": [1] * 6, "DELAY": [5] * 6, "WAIT": [1]}]})
    shapes = ("--shape", "IN:6", "--shape", "DELAY:6")
    words = ("--periodic-concurrency-range", "2:8:3", "--request-period", 2, "--profile-export-file", tmp_path / "out")
    report = measure("-m", "repeat", "--input-data", file, *shapes, *words, *target(server, "stream"))
    (level,) = report.levels
    assert (level.merged.requests, level.merged.responses, dict(level.merged.errors)) == (8, 48, {})
    starts = sorted(record.timestamp_ns for record in report.records)
    seconds = sorted(record.response_timestamps_ns[1] for record in report.records)
    # Three more requests start when the first two have had two responses each, and again three after those.
    assert starts[1] < seconds[1] <= starts[2]
    assert starts[4] < seconds[4] <= starts[5]


def test_a_decoupled_model_needs_a_stream(server: RunningServer) -> None:
    code, _, errors = run_command("-m", "repeat", *target(server, "grpc"))
    assert code != 0
    assert "--streaming" in errors


@pytest.mark.parametrize("protocol", ["grpc", "stream"])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_requests(server: RunningServer, protocol: str, coding: str) -> None:
    words = ("-m", "large", "--request-count", 4, "--grpc-compression-algorithm", coding)
    level = measure_level(*words, *target(server, protocol))
    assert (level.merged.requests, dict(level.merged.errors)) == (4, {})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_steps_of_ensembles_are_counted(server: RunningServer, protocol: str) -> None:
    words = ("-m", "chain", "--shape", "IN:4", "--request-count", 12)
    level = measure_level(*words, *target(server, protocol))
    found = level.merged.server
    assert found is not None
    assert found.successes == 12
    assert [(part.model, part.successes) for part in found.composing] == [("any", 24)]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_hits_of_the_cache_are_counted(server: RunningServer, protocol: str) -> None:
    level = measure_level("-m", "cached", "--request-count", 10, *target(server, protocol))
    found = level.merged.server
    assert found is not None
    # The request before the measurement was the miss.
    assert (found.cache_hits, found.cache_misses) == (10, 0)
    assert found.cache_hit_ns > 0


@pytest.mark.slow
def test_a_search_under_a_latency_limit(server: RunningServer) -> None:
    # One instance that takes 5 ms: 4 in flight wait for at least 15 ms.
    words = ("--concurrency-range", "1:64:1", "-l", 12, *windows(200))
    levels = measure("-m", "slow", *words, *target(server, "http")).levels
    assert [level.is_within_limit for level in levels] == [True] * (len(levels) - 1) + [False]
    assert 2 <= len(levels) <= 4


@pytest.mark.slow
def test_usage_of_the_server_by_its_metrics_and_by_its_pid(server: RunningServer) -> None:
    url = f"{server.host}:{server.metrics}/metrics"
    by_metrics = ("--collect-metrics", "--metrics-url", url, "--metrics-interval", 100)
    for words in (by_metrics, ("--server-pid", server.process.pid)):
        level = measure_level("-m", "id", *words, *windows(500), *target(server, "http"))
        usage = level.merged.usage
        assert usage.cpu_cores is not None and usage.cpu_cores > 0
        assert usage.cpu_us_per_request is not None and usage.cpu_us_per_request > 0
        assert usage.rss_bytes is not None and usage.rss_bytes > 10e6
        assert usage.source in (url, f"pid {server.process.pid}")


def test_metrics_that_are_asked_for_and_not_there_are_an_error(server: RunningServer) -> None:
    words = ("-m", "id", "--request-count", 5, "--metrics-url", "127.0.0.1:1/metrics", *target(server, "http"))
    with pytest.raises(TargetError, match=r"cannot connect to 127\.0\.0\.1:1: .*; leave --collect-metrics out"):
        measure(*words, "--collect-metrics")
    with pytest.raises(TargetError, match=r"the request for the metrics at .* failed: HTTP 404"):
        measure(*words, "--metrics-url", f"{server.url}/nowhere", "--collect-metrics")
    assert "cannot connect to 127.0.0.1:1" in " ".join(measure_level(*words).notes)


@pytest.mark.slow
def test_the_client_says_how_busy_it_is(server: RunningServer) -> None:
    client = measure_level("-m", "id", *windows(300), *target(server, "grpc")).merged.client
    assert 0 < client.cpu_cores <= 1.1
    assert client.cpu_us_per_request > 0


@pytest.mark.slow
def test_custom_intervals(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "intervals"
    file.write_text("2000\n6000\n")
    level = measure_level("-m", "id", "--request-intervals", file, *windows(500), *target(server, "http"))
    assert level.level.value == pytest.approx(250)
    assert level.merged.request_rate == pytest.approx(250, rel=0.1)


def test_a_fixed_schedule(server: RunningServer, tmp_path: Path) -> None:
    rows = [{"INPUT0": [1, 2, 3, 4], "timestamp": [moment]} for moment in (0, 40, 45, 200)]
    file = write_json(tmp_path, {"data": rows})
    words = ("--fixed-schedule", "--input-data", file, "--profile-export-file", tmp_path / "out.json")
    report = measure("-m", "slow", *words, *target(server, "http"))
    starts = np.array(sorted(record.timestamp_ns for record in report.records))
    assert (starts - starts[0]).tolist() == [0, 40_000_000, 45_000_000, 200_000_000]
    assert report.levels[0].merged.requests == 4


def test_every_request_of_an_export(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    words = ("-m", "id", "--request-count", 5, "--profile-export-file", file)
    assert run_command(*words, *target(server, "http"))[0] == 0
    (experiment,) = json.loads(file.read_text())["experiments"]
    assert len(experiment["requests"]) == 5
    assert len(experiment["requests"][0]["request_inputs"]["INPUT0"]) == 16


def exported(folder: Path, *words: object) -> list[dict[str, Any]]:
    """The requests of the profile export of a run, without their times."""
    file = folder / "out.json"
    write_profile_export(measure(*words, "--profile-export-file", file), file)
    (experiment,) = json.loads(file.read_text())["experiments"]
    return [{"in": r["request_inputs"], "out": r["response_outputs"]} for r in experiment["requests"]]


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        *((protocol, ()) for protocol in PROTOCOLS),
        pytest.param("grpc", ("--client-workers", 2, "--concurrency-range", 2), marks=pytest.mark.slow),
    ],
)
def test_an_export_has_what_came_back(
    server: RunningServer, tmp_path: Path, protocol: str, words: tuple[object, ...]
) -> None:
    file = write_json(tmp_path, {"data": [{"INPUT0": ["ab", "c"]}, {"INPUT0": ["d", ""]}]})
    given = ("-m", "text", "--input-data", file, "--request-count", 8, *words, *target(server, protocol))
    found = exported(tmp_path, *given)
    assert all(request["out"] == [{"OUTPUT0": request["in"]["INPUT0"]}] for request in found)
    assert sorted(request["in"]["INPUT0"] for request in found) == [["ab", "c"]] * 4 + [["d", ""]] * 4


def test_an_export_has_every_response(server: RunningServer, tmp_path: Path) -> None:
    file = write_json(tmp_path, {"data": [{"IN": [7, 8, 9], "DELAY": [0, 0, 0], "WAIT": [1]}]})
    words = ("--input-data", file, "--shape", "IN:3", "--shape", "DELAY:3", "--request-count", 2)
    responses = [{"OUT": value, "IDX": number} for number, value in enumerate((7, 8, 9))]
    found = exported(tmp_path, "-m", "repeat", *words, *target(server, "stream"))
    assert [request["out"] for request in found] == [responses] * 2


def test_an_export_of_expected_outputs_as_json(server: RunningServer, tmp_path: Path) -> None:
    rows = [{"INPUT0": [1, 2, 3, 4]}]
    file = write_json(tmp_path, {"data": rows, "validation_data": [{"OUTPUT0": [1, 2, 3, 4]}]})
    words = ("--input-data", file, "--output-tensor-format", "json", "--request-count", 2, *target(server, "http"))
    assert exported(tmp_path, "-m", "slow", *words) == [{"in": rows[0], "out": [{"OUTPUT0": [1, 2, 3, 4]}]}] * 2


@pytest.mark.slow
def test_the_report_of_the_command(server: RunningServer) -> None:
    code, out, errors = run_command("-m", "id", "--concurrency-range=1:2", *windows(100), *target(server, "http"))
    assert code == 0, errors
    assert "Inferences/Second vs. Client Average Batch Latency" in out
    assert [line.split(",")[0] for line in out.splitlines() if line.startswith("Concurrency: ")] == [
        "Concurrency: 1",
        "Concurrency: 2",
    ]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_models_that_a_model_calls_are_counted(server: RunningServer, protocol: str) -> None:
    words = ("-m", "id", "--bls-composing-models", "any,cached:1", "--request-count", 5)
    found = measure_level(*words, *target(server, protocol)).merged.server
    assert found is not None
    assert [(part.model, part.successes) for part in found.composing] == [("any", 0), ("cached", 0)]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_server_is_told_what_to_trace(server: RunningServer, protocol: str) -> None:
    words = ("--trace-level", "TIMESTAMPS", "--trace-rate", 7, "--trace-count", 3, "--log-frequency", 9)
    measure("-m", "slow", *words, "--request-count", 5, *target(server, protocol))
    found = server.get("/v2/models/slow/trace/setting").json()
    assert (found["trace_level"], found["trace_rate"], found["log_frequency"]) == (["TIMESTAMPS"], "7", "9")
