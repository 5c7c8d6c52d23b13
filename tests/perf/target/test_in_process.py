"""Models that run in the process of ``naiad perf``, without a socket."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from backends.test_repeat_and_square import DECOUPLED, REPEAT
from backends.test_sequence_backends import controls
from backends.test_sequence_backends import write as write_sequence
from naiad.perf.options import PerfOptionError
from naiad.perf.report.figures import latency_parts
from naiad.perf.report.findings import largest_contributor
from naiad.perf.report.instances import instances_text
from naiad.perf.report.profile_export import write_profile_export
from naiad.perf.results import LevelResult
from naiad.perf.target.protocol import TargetError
from naiad.testing import wait_until
from support.perf_runs import RUN_S, measure, measure_level, run_command, started, wait_for_line, windows
from support.served_ensembles import chain, write_ensemble
from support.served_models import LOOK_UP, SUM_AND_DIFFERENCE, identity, write_model

DELAY_MS = 20
END_S = 10
ONNX = 'backend: "onnxruntime" max_batch_size: 8'


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("in-process")
    write_model(repository, "at_once", identity(dims="2", max_batch_size=8))
    write_model(repository, "delayed", identity(dims="2", max_batch_size=8, delay_ms=DELAY_MS))
    queued = identity(dims="2", max_batch_size=8, delay_ms=5, extra="dynamic_batching { }")
    write_model(repository, "batched", queued)
    write_model(repository, "pair", identity(dims="2", delay_ms=DELAY_MS).replace("count: 1", "count: 2"))
    write_model(repository, "texts", identity("TYPE_STRING", "2", max_batch_size=8))
    write_model(repository, "simple", ONNX, graph=SUM_AND_DIFFERENCE)
    write_model(repository, "look_up", ONNX, graph=LOOK_UP)
    write_model(repository, "repeat", REPEAT + DECOUPLED)
    write_model(repository, "broken", ONNX)
    write_sequence(repository, "totals", "sequence", f"direct {{ }} {controls('START', 'READY')}")
    write_ensemble(repository, "both", *chain("at_once", "batched"))
    return repository


def level_of(models: Path, model: str, *words: object, requests: int = 40) -> LevelResult:
    """The result of so many requests."""
    return measure_level(*options(models, model), "--request-count", requests, *words)


def options(models: Path, model: str) -> tuple[object, ...]:
    return ("-m", model, "--service-kind", "in_process", "--model-repository", models)


def data(folder: Path, *steps: Any, expected: list[Any] | None = None) -> Path:
    """A file of ``--input-data``."""
    file = folder / "data.json"
    file.write_text(json.dumps({"data": list(steps)} | ({"validation_data": expected} if expected else {})))
    return file


@pytest.mark.parametrize("model", ["at_once", "simple", "delayed", "texts", "batched"])
def test_every_request_is_a_request_of_the_model(models: Path, model: str) -> None:
    window = level_of(models, model, "--concurrency-range", 4).merged
    assert (window.requests, window.errors) == (40, {})
    assert window.server is not None
    assert (window.server.successes, window.server.failures) == (40, 0)


@pytest.mark.slow
def test_outputs_are_compared(models: Path, tmp_path: Path) -> None:
    file = data(tmp_path, {"INPUT0": [1, 2]}, {"INPUT0": [3, 4]}, expected=[{"OUTPUT0": [1, 2]}, {"OUTPUT0": [3, 5]}])
    window = level_of(models, "at_once", "--input-data", file).merged
    assert window.requests == 20
    [((kind, message), count)] = window.errors.items()
    assert (kind, count) == ("wrong output", 20)
    assert "OUTPUT0" in message


@pytest.mark.slow
def test_texts_come_back(models: Path, tmp_path: Path) -> None:
    file = data(tmp_path, {"INPUT0": ["one", ""]}, expected=[{"OUTPUT0": ["one", ""]}])
    assert level_of(models, "texts", "--input-data", file).merged.requests == 40


@pytest.mark.slow
def test_requests_in_flight_share_batches(models: Path) -> None:
    window = level_of(models, "batched", "--concurrency-range", 8, requests=80).merged
    assert window.server is not None
    assert window.server.inferences == 80
    assert window.server.executions <= 40


@pytest.mark.slow
def test_the_rows_of_a_request_count(models: Path) -> None:
    level = level_of(models, "at_once", "-b", 4)
    assert level.merged.server is not None
    assert level.merged.server.inferences == 160
    assert level.inference_rate == pytest.approx(level.merged.request_rate * 4)


@pytest.mark.slow
def test_a_known_delay_is_measured(models: Path) -> None:
    window = level_of(models, "delayed", requests=10).merged
    assert window.latency.percentile(1) >= DELAY_MS * 1e6
    # With four in flight and one instance each waits for three others.
    queued = level_of(models, "delayed", "--concurrency-range", 4, requests=12).merged
    assert queued.latency.percentile(90) >= 4 * DELAY_MS * 1e6


@pytest.mark.slow
@pytest.mark.parametrize("model", ["at_once", "batched"])
def test_an_open_loop(models: Path, model: str) -> None:
    window = level_of(models, model, "--request-rate-range", 90, requests=100).merged
    assert (window.requests, window.errors) == (100, {})
    # The last one is due 99 intervals after the first one.
    assert window.duration_s >= 99 / 90
    assert window.send_delay.count == 100


@pytest.mark.slow
def test_time_windows_end(models: Path) -> None:
    level = measure_level(*options(models, "at_once"), *windows(50))
    assert len(level.windows) == 3
    assert all(window.requests for window in level.windows)


@pytest.mark.slow
def test_a_sequence_keeps_its_order(models: Path, tmp_path: Path) -> None:
    steps = [[{"INPUT": {"content": [value], "shape": [1]}} for value in values] for values in ([1, 2, 3], [10, 20])]
    totals = [[{"OUTPUT": {"content": [value], "shape": [1]}} for value in values] for values in ([1, 3, 6], [10, 30])]
    file = data(tmp_path, *steps, expected=totals)
    window = level_of(models, "totals", "--input-data", file, "--concurrency-range", 2, requests=50).merged
    assert (window.requests, window.errors) == (50, {})
    assert window.sequences >= 18


@pytest.mark.slow
def test_every_response_of_a_decoupled_model(models: Path, tmp_path: Path) -> None:
    file = data(tmp_path, {"IN": [7, 8, 9], "DELAY": [0, 0, 0], "WAIT": [0]})
    window = level_of(
        models, "repeat", "--input-data", file, "--shape", "IN:3", "--shape", "DELAY:3", "--streaming"
    ).merged
    assert (window.requests, window.responses) == (40, 120)
    assert (window.first_response.count, window.between_responses.count) == (40, 80)


@pytest.mark.slow
def test_a_decoupled_model_needs_streaming(models: Path) -> None:
    with pytest.raises(PerfOptionError, match=r"Decoupled models must be run with .*--streaming"):
        level_of(models, "repeat", "--shape", "IN:3", "--shape", "DELAY:3")


@pytest.mark.slow
def test_an_ensemble_with_its_members(models: Path) -> None:
    window = level_of(models, "both", "--shape", "IN:2").merged
    assert window.server is not None
    assert [(part.model, part.inferences) for part in window.server.composing] == [("at_once", 40), ("batched", 40)]


@pytest.mark.slow
def test_errors_of_the_model_have_their_cause(models: Path, tmp_path: Path) -> None:
    file = data(tmp_path, {"index": [0]}, {"index": [9]})
    window = level_of(models, "look_up", "--input-data", file).merged
    assert window.requests == 20
    [((_, message), count)] = window.errors.items()
    assert count == 20
    assert "indices element out of data bounds, idx=9" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "words", "error", "match"),
    [
        ("nowhere", (), TargetError, "cannot load the model 'nowhere' in this process: .*nowhere"),
        ("broken", (), TargetError, "cannot load the model 'broken' in this process: .*model.onnx"),
        ("at_once", ("-x", "7"), TargetError, "version 7 is not found"),
        ("at_once", ("--trace-level", "TIMESTAMPS"), TargetError, "--trace-. need a server"),
        ("at_once", ("--shared-memory", "system"), TargetError, "--shared-memory has no use"),
        ("at_once", ("-b", "9"), PerfOptionError, "batch size > 8"),
    ],
)
def test_what_cannot_be_measured(
    models: Path, model: str, words: tuple[object, ...], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        level_of(models, model, *words)


@pytest.mark.slow
def test_an_export_has_what_came_back(models: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    words = ("--input-data", data(tmp_path, {"INPUT0": ["ab", "c"]}), "--request-count", 3)
    write_profile_export(measure(*options(models, "texts"), *words, "--profile-export-file", file), file)
    found = json.loads(file.read_text())
    assert found["service_kind"] == "triton_c_api"
    outputs = [request["response_outputs"] for request in found["experiments"][0]["requests"]]
    assert outputs == [[{"OUTPUT0": ["ab", "c"]}]] * 3


@pytest.mark.slow
def test_nothing_stays_behind(models: Path) -> None:
    level_of(models, "delayed", requests=2)
    process = psutil.Process()
    # Other tests of this process may keep servers.
    threads, others = process.num_threads(), set(process.children(recursive=True))
    level_of(models, "delayed", requests=2)
    # A thread that has ended is in the count until the kernel has removed it.
    wait_until(lambda: process.num_threads() <= threads, RUN_S, "no thread stays behind")
    assert set(process.children(recursive=True)) - others == set()


@pytest.mark.slow
def test_the_processor_time_is_that_of_this_process(models: Path) -> None:
    report = measure(*options(models, "delayed"), *windows(100))
    usage = report.levels[0].merged.usage
    assert usage.source == f"pid {os.getpid()}"
    assert usage.rss_bytes is not None
    # The process is server and client in one, so it is no bottleneck of the client.
    assert not report.levels[0].merged.client.is_bottleneck
    assert (report.protocol, report.endpoint) == ("in_process", "this process")


@pytest.mark.slow
def test_the_command(models: Path) -> None:
    code, out, errors = run_command(*options(models, "simple"), "--concurrency-range", "1:2", *windows(100))
    assert (code, errors) == (0, "")
    assert "Service Kind: TRITON_C_API" in out
    assert "HTTP time" not in out
    assert "Concurrency: 2, throughput: " in out


@pytest.mark.slow
def test_interrupting_prints_what_there_is(models: Path) -> None:
    with started(*options(models, "delayed"), "--concurrency-range", "1:100", *windows(100)) as process:
        wait_for_line(process, "p99 latency")
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=RUN_S)
    assert "The run was interrupted" in out
    assert "Traceback" not in errors


@pytest.mark.slow
def test_what_no_network_takes_is_not_called_network(models: Path) -> None:
    result = level_of(models, "at_once", "--concurrency-range", 8, requests=400)
    found = latency_parts(result.merged)
    assert found.network == 0
    assert found.event_loop > 0
    largest = largest_contributor(result.merged)
    assert largest is not None
    assert largest.name != "network"


@pytest.mark.slow
def test_what_a_second_instance_gains_is_said(models: Path) -> None:
    report = measure(*options(models, "pair"), "--concurrency-range", "1:4:3", *windows(150))
    assert report.instances == 2
    text = instances_text(report.levels, report.instances)
    assert text.startswith("Instances: a second instance gains: "), text
    # Twice as many, as far as the machine has time.
    assert float(text.split()[5]) > 1.3
