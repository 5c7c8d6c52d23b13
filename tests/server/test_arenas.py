"""Large inputs of models in processes: they are received where the process maps them, and belong to one request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils

from naiad.testing import RunningServer, serving, wait_until
from support.front_processes import FRONTS, input_of, processes, served
from support.python_models import write_python_model
from support.served_ensembles import step, write_ensemble
from support.served_models import write_model

Array = np.ndarray[Any, Any]
VALUES = 40_000
# Adds 1 to its input, in place. The id says what else it does.
CHANGES = """
class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.answer(r))]) for r in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if request.request_id() == "die":
            os._exit(3)
        if request.request_id() == "maps":
            with open("/proc/self/maps") as file:
                return np.array([[file.read().count("naiad-arena")]], np.float32)
        if request.request_id() == "kept":
            found, self.kept = np.stack([kept[0] for kept in self.kept]), []
            return found
        if request.request_id() == "new":
            return x + 1
        x += 1
        if request.request_id() == "keep":
            self.kept.append(x)
        return x
"""
TWO = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x, s = [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("X", "S")]
            x *= 2
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x), pb_utils.Tensor("T", s)]))
        return answers
"""
TWO_TENSORS = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "S" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "T" data_type: TYPE_STRING dims: [ -1 ] } ]
"""
# Fails for numbers above 2.
LOOKS_UP = (
    '<ir_version: 8, opset_import: ["": 17]> g (float[N, M] X) => (float[N, M] Y) <float[3] table = {0, 10, 20}> '
    "{ I = Cast <to = 7> (X) Y = Gather (table, I) }"
)
DOUBLE = '<ir_version: 8, opset_import: ["": 17]> g (float[N, M] X) => (float[N, M] Y) { Y = Add (X, X) }'


class Caller:
    """A caller over either protocol, in any thread: a client of its own for each request."""

    def __init__(self, server: RunningServer, module: Any) -> None:
        self.server = server
        self.url = server.url if module is tritonclient.http else server.grpc_url
        self.module = module

    def infer(self, model: str, x: Array, request_id: str = "", name: str = "X") -> Array:
        given = input_of(self.module, name, x)
        with self.module.InferenceServerClient(self.url) as client:
            found: Array = client.infer(model, [given], request_id=request_id).as_numpy("Y")
        return found


@pytest.fixture(scope="module", params=[(), FRONTS], ids=["one process", "front ends"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("arenas")
    models = folder / "models"
    cached = "max_batch_size: 8 response_cache { enable: true }"
    write_python_model(models, "changes", CHANGES, "max_batch_size: 8 dynamic_batching { }")
    write_python_model(models, "several", CHANGES, count=2)
    for name in ("member", "first", "second"):
        write_python_model(models, name, CHANGES, "max_batch_size: 8")
    write_python_model(models, "cached", CHANGES, cached)
    write_python_model(models, "two", TWO, tensors=TWO_TENSORS)
    inside = 'parameters { key: "execution" value { string_value: "process" } }'
    config = 'backend: "onnxruntime" max_batch_size: 8 input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]'
    write_model(
        models,
        "network",
        f'{config} output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }} ] {inside}'
        " dynamic_batching { max_queue_delay_microseconds: 20000 }",
        (1,),
        DOUBLE,
    )
    write_model(
        models,
        "looks_up",
        f'{config} output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }} ] {inside}'
        " dynamic_batching { max_queue_delay_microseconds: 100000 }",
        (1,),
        LOOKS_UP,
    )
    # Both steps have the ensemble's own input.
    steps = step("member", {"X": "IN"}, {"Y": "FIRST"}), step("network", {"X": "IN"}, {"Y": "SECOND"})
    write_ensemble(
        models,
        "both",
        *steps,
        inputs={"IN": "TYPE_FP32 -1"},
        outputs={"FIRST": "TYPE_FP32 -1", "SECOND": "TYPE_FP32 -1"},
    )
    # Only the first step has the ensemble's own input.
    steps = step("first", {"X": "IN"}, {"Y": "MIDDLE"}), step("network", {"X": "MIDDLE"}, {"Y": "Y"})
    write_ensemble(models, "chain", *steps, inputs={"IN": "TYPE_FP32 -1"}, outputs={"Y": "TYPE_FP32 -1"})
    write_ensemble(
        models,
        "cached_chain",
        step("second", {"X": "IN"}, {"Y": "Y"}),
        inputs={"IN": "TYPE_FP32 -1"},
        outputs={"Y": "TYPE_FP32 -1"},
        extra="response_cache { enable: true }",
    )
    options = "--cache-config", "local,size=67108864", *request.param
    with serving(folder / "log", "--model-repository", models, *options) as running:
        yield running


@pytest.fixture(params=[tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def caller(request: pytest.FixtureRequest, server: RunningServer) -> Caller:
    return Caller(server, request.param)


def row(value: float, values: int = VALUES) -> Array:
    return np.full((1, values), value, np.float32)


def arenas_of(server: RunningServer) -> int:
    """How many arenas the worker of the model ``changes`` maps. No such small input lies in one."""
    return int(Caller(server, tritonclient.http).infer("changes", row(0, 1), "maps")[0, 0])


def segments(pid: int) -> set[str]:
    """The inodes of the segments that a process maps."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "/memfd:naiad (" in line}


def tree(server: RunningServer) -> list[psutil.Process]:
    """All processes of a server."""
    main = psutil.Process(server.process.pid)
    return [main, *main.children(recursive=True)]


def are_without_arenas(processes: list[psutil.Process]) -> bool:
    """Whether none of them maps one, or has its descriptor."""
    for process in processes:
        folder = Path(f"/proc/{process.pid}")
        with suppress(FileNotFoundError, ProcessLookupError):
            if "naiad-arena" in (folder / "maps").read_text():
                return False
            for descriptor in (folder / "fd").iterdir():
                with suppress(FileNotFoundError):
                    if "naiad-arena" in str(descriptor.readlink()):
                        return False
    return True


@pytest.mark.parametrize("model", ["changes", "several"])
def test_a_worker_gets_each_input_as_it_came(caller: Caller, model: str) -> None:
    def ask(number: int) -> None:
        # Two sizes, so that blocks of both come and go.
        x = row(number, VALUES * (1 + number % 2))
        assert np.array_equal(caller.infer(model, x), x + 1), number

    for number in range(3):
        ask(number)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(80)))


def test_a_worker_maps_the_arenas_of_its_model_alone(caller: Caller, server: RunningServer) -> None:
    for model in ("changes", "several", "network"):
        # Of each process that listens the first request over HTTP finds the model, and the next one its arena.
        for _ in range(20):
            caller.infer(model, row(1))
    listening = len(processes(server)["front"]) or 1
    assert 1 <= arenas_of(server) <= listening


@pytest.mark.slow
def test_a_front_end_maps_the_outputs_of_a_worker(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "changes", CHANGES)
    with served(tmp_path / "models", tmp_path / "log") as server:
        found = processes(server)
        (worker,) = [child for engine in found["engine"] for child in engine.children() if child.children() == []]

        def ask(request_id: str) -> None:
            for module in (tritonclient.http, tritonclient.grpc):
                # So many that each front end gets two of them: its second one over HTTP finds the arena.
                for number in range(20):
                    assert (Caller(server, module).infer("changes", row(number), request_id) == number + 1).all()

        ask("new")
        of_fronts = set[str]().union(*(segments(front.pid) for front in found["front"]))
        assert segments(worker.pid) & of_fronts
        # Nobody needs them any more, which the worker and then the engine find out.
        wait_until(lambda: not segments(worker.pid) & of_fronts, 20, "the worker drops its segments")
        for front in found["front"]:
            wait_until(lambda pid=front.pid: not segments(pid), 20, "the front ends unmap them")  # type: ignore[misc]
        # Outputs in the memory of inputs need none. The first requests found no arena yet.
        ask("")
        assert not segments(worker.pid)


def test_what_a_model_keeps_stays_as_it_is(caller: Caller) -> None:
    caller.infer("changes", row(0))
    for number in range(20):
        caller.infer("changes", row(number), "keep")
        caller.infer("changes", row(-1))
    kept = caller.infer("changes", row(0), "kept")
    assert np.array_equal(kept, np.stack([row(number + 1)[0] for number in range(20)]))


def test_a_model_that_dies_with_its_input(caller: Caller) -> None:
    before = caller.infer("several", row(1))
    with pytest.raises(tritonclient.utils.InferenceServerException):
        caller.infer("several", row(2), "die")

    def lives() -> bool:
        try:
            return bool(np.array_equal(caller.infer("several", row(1)), before))
        except tritonclient.utils.InferenceServerException:
            return False

    wait_until(lives, 30, "an answer after the worker has died")
    for number in range(20):
        assert caller.infer("several", row(number))[0, 0] == number + 1


def test_a_cached_model_that_changes_its_input(caller: Caller) -> None:
    values = row(5.5 if caller.module is tritonclient.grpc else 7.5)
    for _ in range(3):
        assert np.array_equal(caller.infer("cached", values), values + 1)


def test_a_step_that_changes_its_input_changes_no_other_steps(server: RunningServer) -> None:
    with tritonclient.http.InferenceServerClient(server.url) as client:
        for number in range(5):
            given = input_of(tritonclient.http, "IN", row(number))
            found = client.infer("both", [given])
            assert (found.as_numpy("FIRST") == number + 1).all()
            assert (found.as_numpy("SECOND") == 2 * number).all()


def test_the_first_step_of_an_ensemble_gets_the_input_as_it_came(caller: Caller) -> None:
    def ask(number: int) -> None:
        x = row(number, VALUES * (1 + number % 2))
        assert np.array_equal(caller.infer("chain", x, name="IN"), 2 * (x + 1)), number

    for number in range(20):
        ask(number)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(40)))
    # The last step doubles what the first one says. Large tensors between the steps lie elsewhere.
    assert caller.infer("chain", row(0, 1), "maps", "IN")[0, 0] >= 2
    for _ in range(3):
        assert (caller.infer("cached_chain", row(7), name="IN") == 8).all()
    assert caller.infer("cached_chain", row(0, 1), "maps", "IN")[0, 0] == 0


def test_a_framework_in_a_process(caller: Caller) -> None:
    def ask(number: int) -> None:
        assert np.array_equal(caller.infer("network", row(number)), row(2 * number))

    for number in range(3):
        ask(number)
    # Alone and in batches, whose requests the process puts together.
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(40)))
    with tritonclient.http.InferenceServerClient(caller.server.url) as client:
        stats = client.get_inference_statistics("network")["model_stats"][0]
    assert stats["inference_count"] > stats["execution_count"]


def test_one_request_of_a_batch_fails_in_a_process(caller: Caller) -> None:
    def ask(number: int) -> bool:
        try:
            return bool((caller.infer("looks_up", row(number)) == 10 * number).all())
        except tritonclient.utils.InferenceServerException as error:
            assert "indices element out of data bounds" in str(error)
            return number > 2

    for number in range(2):
        assert ask(number)
    # The others run again, in smaller batches.
    with ThreadPoolExecutor(8) as threads:
        for _ in range(3):
            assert all(threads.map(ask, [0, 1, 2, 1, 5, 2, 0, 1]))


@pytest.mark.slow
def test_inputs_beyond_memory_do_not_end_the_process(tmp_path: Path) -> None:
    tensor = "data_type: TYPE_FP32 dims: [ -1 ]"
    config = f'backend: "onnxruntime" max_batch_size: 8 input [ {{ name: "X" {tensor} }} ]'
    config += f' output [ {{ name: "Y" {tensor} }} ] dynamic_batching {{ max_queue_delay_microseconds: 100000 }}'
    config += ' parameters { key: "execution" value { string_value: "process" } }'
    write_model(tmp_path / "models", "network", config, (1,), DOUBLE)
    values, asked = 4 << 20, 8
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        caller = Caller(server, tritonclient.http)
        caller.infer("network", row(1))
        frameworks = [child for child in tree(server) if "out_of_process" in " ".join(child.cmdline())]
        for process in frameworks:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            (used,) = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData")]
            # For the outputs of one request, and not for the inputs of two.
            process.rlimit(psutil.RLIMIT_DATA, (used + 6 * values, -1))

        def ask(number: int) -> bool:
            return bool((caller.infer("network", row(number, values)) == 2 * number).all())

        # Batches that cannot be put together run again, each request alone.
        with ThreadPoolExecutor(asked) as threads:
            assert all(threads.map(ask, range(asked)))
        assert all(process.is_running() for process in frameworks)


def test_the_messages_of_a_stream(server: RunningServer) -> None:
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        answers: SimpleQueue[Any] = SimpleQueue()
        client.start_stream(lambda result, error: answers.put(error or result))
        for number in range(12):
            given = input_of(tritonclient.grpc, "X", row(number))
            client.async_stream_infer("several", [given], request_id=str(number))
        found = [answers.get(timeout=60) for _ in range(12)]
        client.stop_stream()
    for result in found:
        assert np.array_equal(result.as_numpy("Y"), row(int(result.get_response().id) + 1))


def test_numbers_and_strings_in_one_request(server: RunningServer) -> None:
    strings = np.array([[str(number).encode() * 5 for number in range(VALUES)]], np.object_)
    with tritonclient.http.InferenceServerClient(server.url) as client:
        for number in range(4):
            numbers = input_of(tritonclient.http, "X", row(number))
            found = client.infer("two", [numbers, input_of(tritonclient.http, "S", strings)])
            assert np.array_equal(found.as_numpy("Y"), row(2 * number))
            assert np.array_equal(found.as_numpy("T"), strings)


def test_a_trace_shows_what_came(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "changes", CHANGES)
    file = tmp_path / "trace.json"
    options = ["--trace-config", f"triton,file={file}"]
    for setting in ("rate=1", "level=TIMESTAMPS", "level=TENSORS"):
        options += ["--trace-config", setting]
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models", *options) as server:
        caller = Caller(server, tritonclient.http)
        for number in (4, 5):
            assert caller.infer("changes", row(number))[0, 0] == number + 1
    seen = [
        entry["tensor"]["data"]
        for entry in json.loads(file.read_text())
        if entry.get("activity") == "TENSOR_QUEUE_INPUT"
    ]
    assert [text.split(",")[0] for text in seen] == ["4.0", "5.0"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), FRONTS], ids=["one process", "front ends"])
def test_an_unloaded_model_leaves_no_arena(tmp_path: Path, options: tuple[object, ...]) -> None:
    write_python_model(tmp_path / "models", "changes", CHANGES)
    explicit = "--model-control-mode=explicit", "--load-model=changes"
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models", *explicit, *options) as server:
        for number in range(3):
            for module in (tritonclient.http, tritonclient.grpc):
                for _ in range(6):
                    assert Caller(server, module).infer("changes", row(number))[0, 0] == number + 1
            assert not are_without_arenas(tree(server))
            assert server.post("/v2/repository/models/changes/unload", {}).status == 200
            if number < 2:
                assert server.post("/v2/repository/models/changes/load", {}).status == 200
        wait_until(lambda: are_without_arenas(tree(server)), 20, "all processes unmap the arenas")


@pytest.mark.slow
def test_a_front_end_that_dies_leaves_no_arena(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "changes", CHANGES)
    with served(tmp_path / "models", tmp_path / "log") as server:
        callers = Caller(server, tritonclient.http), Caller(server, tritonclient.grpc)
        for number in range(20):
            for caller in callers:
                assert caller.infer("changes", row(number))[0, 0] == number + 1
        assert arenas_of(server) == 2
        found = processes(server)
        for front in found["front"]:
            front.kill()
            front.wait()

        def has_dropped_them() -> bool:
            try:
                return arenas_of(server) == 0
            except (OSError, tritonclient.utils.InferenceServerException):
                return False

        wait_until(has_dropped_them, 20, "the worker unmaps the arenas of front ends that are gone")
        assert are_without_arenas(tree(server))
        for number in range(10):
            for caller in callers:
                assert caller.infer("changes", row(number))[0, 0] == number + 1
