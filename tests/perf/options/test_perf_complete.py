"""What follows from the options once the model is known, and what does not fit it; also beside perf_analyzer."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from naiad.perf.options import PerfOptionError, complete_settings, parse_perf
from naiad.perf.settings import PerfSettings, Range
from naiad.perf.steps import ModelDescription, TensorDescription
from naiad.testing import RunningServer, serving
from support.perf_analyzer import found_tool, run_tool
from support.served_models import identity, tensor, write_model

INPUT0 = TensorDescription("INPUT0", "INT32", (4,))
OUTPUT0 = TensorDescription("OUTPUT0", "INT32", (4,))
BATCHED = ModelDescription("batched", "1", (INPUT0,), (OUTPUT0,), max_batch_size=8)
SINGLE = replace(BATCHED, name="single", max_batch_size=0)
SEQUENCE = replace(BATCHED, name="sequence", is_sequence=True)
DECOUPLED = replace(SINGLE, name="decoupled", is_decoupled=True)
ENSEMBLE = replace(BATCHED, name="ensemble", composing=(BATCHED, SEQUENCE))
MODELS = {model.name: model for model in (BATCHED, SINGLE, SEQUENCE, DECOUPLED, ENSEMBLE)}

NO_BATCHES = "can not specify batch size > 1 as the model does not support batching"
NO_BATCHES_OF_SEQUENCES = "can not specify batch size > 1 when using a sequence model"
NO_SYNC_STREAMS = "can not use streaming with synchronous API"
NEEDS_STREAMS = (
    "Decoupled models must be run with `--async` and `--streaming` and either `-i grpc` or "
    "`--service-kind=triton_c_api`"
)
OPEN_END = "The 'end' concurrency can not be 0 for sequence models when using asynchronous API."
FEW_IDS = (
    "sequence id range specified is smaller than the maximum possible concurrency, sequence id collision may occur."
)
FEW_IDS_FOR_SEQUENCES = (
    "sequence id range specified is smaller than the maximum possible number of sequences, sequence id collision may "
    "occur."
)
LIMITED = "The maximum attainable concurrency will be limited by max_threads specification."
OVERRIDDEN = "Overriding max_threads specification to ensure requested concurrency range."

# Those that perf_analyzer 2.51 refuses as well, with these texts.
REFUSED = [
    ("single -b 2", NO_BATCHES),
    ("sequence -b 2", NO_BATCHES_OF_SEQUENCES),
    ("batched -i grpc --streaming --sync", NO_SYNC_STREAMS),
    ("decoupled", NEEDS_STREAMS),
    ("decoupled -i grpc --async", NEEDS_STREAMS),
    ("sequence --concurrency-range 1:0 -l 100", OPEN_END),
    ("sequence --concurrency-range 1:0 -l 100 -i grpc --streaming", OPEN_END),
    ("sequence --sequence-id-range 1:3 --concurrency-range 4", FEW_IDS),
    ("batched --sequence-id-range 5:7 --concurrency-range 1:4", FEW_IDS),
    ("sequence --sequence-id-range 1:4 --request-rate-range 10", FEW_IDS_FOR_SEQUENCES),
    ("sequence --sequence-id-range 1:9 --request-rate-range 10 --num-of-sequences 9", FEW_IDS_FOR_SEQUENCES),
]
OWN_REFUSALS = [
    ("batched -b 9", "can not specify batch size > 8 as that is the max_batch_size of the model"),
    ("batched --sweep batch=1,9", "can not specify batch size > 8 as that is the max_batch_size of the model"),
    ("single --sweep batch=1,2", NO_BATCHES),
    ("ensemble -b 2", NO_BATCHES_OF_SEQUENCES),
    (
        "batched -i grpc --streaming --periodic-concurrency-range 1:2 --profile-export-file new.json",
        "the --periodic-concurrency-range option waits for 10 responses of each request (--request-period), but the "
        "model is not decoupled: it sends one",
    ),
]
# What both take, and how the original names the calls.
TAKEN = [
    ("batched --request-count 4 -b 8", "synchronous"),
    ("batched --request-count 4 --async", "asynchronous"),
    ("batched --request-count 4 -i grpc --streaming", "asynchronous"),
    ("sequence --request-count 4", "asynchronous"),
    ("sequence --request-count 4 --sync", "synchronous"),
    ("sequence --request-count 50 --sequence-id-range 1:3 --concurrency-range 2", "asynchronous"),
]


def completed(line: str) -> PerfSettings:
    name, *words = line.split()
    return complete_settings(parse_perf(["-m", name, *words], {}), MODELS[name])


@pytest.mark.parametrize(("line", "text"), [*REFUSED, *OWN_REFUSALS])
def test_options_that_do_not_fit_the_model(line: str, text: str) -> None:
    with pytest.raises(PerfOptionError) as caught:
        completed(line)
    assert (str(caught.value), caught.value.exit_code) == (f"Error: {text}", 3)


@pytest.mark.parametrize(("line", "calls"), [*TAKEN, ("ensemble", "asynchronous"), ("single --async", "asynchronous")])
def test_calls_are_asynchronous_by_default_for_sequences_and_streams(line: str, calls: str) -> None:
    got = completed(line)
    assert got.target.is_async is (calls == "asynchronous")
    assert got.warnings == ()


@pytest.mark.parametrize(
    ("line", "levels", "threads", "warnings"),
    [
        ("batched", Range(1, 1, 1), 1, ()),
        ("batched --concurrency-range 4:32", Range(4, 32, 1, is_explicit=True), 32, ()),
        ("batched --concurrency-range 4:32 --async", Range(4, 32, 1, is_explicit=True), 32, ()),
        ("batched --concurrency-range 4 --async", Range(4, 4, 1), 16, ()),
        ("batched --concurrency-range 4 --async --max-threads 2", Range(4, 4, 1), 2, ()),
        ("batched --concurrency-range 4 --max-threads 2", Range(4, 4, 1), 4, (OVERRIDDEN,)),
        ("batched --concurrency-range 2:0 -l 5", Range(2, 16, 1, is_explicit=True), 16, (LIMITED,)),
        ("batched --concurrency-range 2:0 -l 5 --max-threads 6", Range(2, 6, 1, is_explicit=True), 6, (LIMITED,)),
        ("batched --concurrency-range 8:0 -l 5 --max-threads 6", Range(8, 8, 1, is_explicit=True), 6, (LIMITED,)),
        ("batched --concurrency-range 2:0 -l 5 --async", Range(2, 0, 1, is_explicit=True), 16, ()),
        ("batched --request-rate-range 10:0 -l 5", Range(10, 0, 1, is_explicit=True), 4, ()),
        ("batched --request-rate-range 10 --max-threads 7", Range(10, 10, 1), 7, ()),
    ],
)
def test_threads_bound_an_open_search(line: str, levels: Range, threads: int, warnings: tuple[str, ...]) -> None:
    got = completed(line)
    assert (got.load.levels, got.load.max_threads, got.warnings) == (levels, threads, warnings)


def test_warnings_of_the_command_line_stay() -> None:
    assert completed("batched --concurrency-range 4 --max-threads 2 --verbose-csv").warnings == (
        "--verbose-csv has no effect without -f",
        OVERRIDDEN,
    )


def test_a_shape_of_an_input_that_the_model_has_not() -> None:
    assert completed("batched --shape INPUT1:3 --shape INPUT0:4").warnings == (
        "--shape INPUT1 has no effect: the model has no such input; did you mean 'INPUT0'?",
    )
    assert completed("batched --shape x:3").warnings == (
        "--shape x has no effect: the model has no such input; its inputs are INPUT0",
    )


def test_one_response_is_enough_for_a_period_of_one() -> None:
    line = "-i grpc --streaming --periodic-concurrency-range 1:2 --profile-export-file new.json --request-period"
    assert completed(f"batched {line} 1").load.request_period == 1
    assert completed(f"decoupled {line} 5").load.request_period == 5


@pytest.fixture(scope="module")
def tool() -> str:
    return found_tool()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("described") / "models"
    write_model(repository, "batched", identity(dims="4", max_batch_size=8))
    write_model(repository, "single", identity(dims="4"))
    controls = ", ".join(
        f'{{ name: "{kind}" control [ {{ kind: CONTROL_SEQUENCE_{kind} int32_false_true: [ 0, 1 ] }} ] }}'
        for kind in ("START", "READY")
    )
    vector = f"input [ {tensor('INPUT', 'TYPE_INT32', '4')} ] output [ {tensor('OUTPUT', 'TYPE_INT32', '4')} ]"
    batching = f"sequence_batching {{ direct {{ }} control_input [ {controls} ] }}"
    write_model(repository, "sequence", f'backend: "sequence" max_batch_size: 8 {vector} {batching}')
    one = f"input [ {tensor('IN', 'TYPE_INT32', '1')} ] output [ {tensor('OUT', 'TYPE_INT32', '1')} ]"
    policy = "model_transaction_policy { decoupled: true }"
    write_model(repository, "decoupled", f'backend: "square" {one} {policy}')
    with serving(repository.parent / "log", repository) as running:
        yield running


def original(tool: str, server: RunningServer, line: str) -> subprocess.CompletedProcess[str]:
    """What perf_analyzer says of a command line whose first word is the model."""
    url = server.grpc_url if "grpc" in line else server.url
    return run_tool([tool, "-u", url, "-m", *line.split()])


@pytest.mark.slow
@pytest.mark.parametrize(("line", "text"), REFUSED)
def test_the_original_refuses_with_the_same_text(tool: str, server: RunningServer, line: str, text: str) -> None:
    done = original(tool, server, line)
    assert done.returncode == 99
    assert text in done.stderr.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("line", "calls"), TAKEN)
def test_the_original_makes_the_same_calls(tool: str, server: RunningServer, line: str, calls: str) -> None:
    done = original(tool, server, line)
    assert done.returncode == 0, done.stderr
    assert f"  Using {calls} calls for inference" in done.stdout.splitlines()
