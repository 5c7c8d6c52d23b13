"""Shared memory of clients on a real server, over both protocols: every way in which a model runs, and what can go
wrong with memory that somebody else owns."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import psutil
import pytest
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from naiad.testing import RunningServer, serving, wait_until
from support import onnx_models
from support.python_models import DOUBLES, MISBEHAVES, REPEATS, write_python_model
from support.served_models import identity, write_model
from support.shared_regions import PROTOCOLS, Caller, calling, descriptors, memory

STRINGS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x[:, ::-1])]))
        return answers
"""
GATE = """
class TritonPythonModel:
    def initialize(self, args):
        self.gate = os.path.join(args["model_repository"], "open")

    def execute(self, requests):
        while not os.path.exists(self.gate):
            time.sleep(0.01)
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)]))
        return answers
"""
KEEPS = """
class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        answers = []
        for request in requests:
            self.kept.append(pb_utils.get_input_tensor_by_name(request, "X").as_numpy())
            first = np.array([[array[0, 0] for array in self.kept]], np.float32)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", first)]))
        return answers
"""
ASYNC = """
class TritonPythonModel:
    async def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)]))
        return answers
"""
CALLS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            called = pb_utils.InferenceRequest(model_name="doubles", requested_output_names=["Y"], inputs=[x])
            answers.append(pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(called.exec(), "Y")]))
        return answers
"""
ADDS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            a, b = [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in "AB"]
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", a + b)]))
        return answers
"""
TWO = """
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
BYTES = """
input [ { name: "X" data_type: TYPE_STRING dims: [ -1 ] } ] output [ { name: "Y" data_type: TYPE_STRING dims: [ -1 ] } ]
"""
BATCHING = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 20000 }"
# Below what travels in a frame, above what is read on the loop, and far above.
COLUMNS = (4, 10_000, 30_000, 200_000)
DOUBLING = ("doubles", "batched", "async", "calls", "thread", "process", "shared")
TEXT = "shared memory region 'in' is not as large as it was when it was registered"


def write_repository(folder: Path) -> None:
    write_model(folder, "same", identity("TYPE_FP32", max_batch_size=8))
    write_model(folder, "same_slow", identity("TYPE_FP32", max_batch_size=8, delay_ms=1))
    write_model(folder, "same_strings", identity("TYPE_STRING", max_batch_size=8))
    for name, source in {"doubles": DOUBLES, "async": ASYNC, "calls": CALLS, "gate": GATE, "keeps": KEEPS}.items():
        write_python_model(folder, name, source)
    write_python_model(folder, "misbehaves", MISBEHAVES)
    write_python_model(folder, "batched", DOUBLES, BATCHING)
    write_python_model(folder, "strings", STRINGS, tensors=BYTES)
    write_python_model(folder, "adds", ADDS, tensors=TWO)
    write_python_model(folder, "repeats", REPEATS, "model_transaction_policy { decoupled: true }")
    for way in ("thread", "process", "shared"):
        onnx_models.double(folder / way / "1" / "model.onnx", ("N", "D"), ("N", "D"))
        told = f'parameters {{ key: "execution" value {{ string_value: "{way}" }} }}'
        batching = "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 20000 }"
        (folder / way / "config.pbtxt").write_text(f'backend: "onnxruntime" {batching} {told}')


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regions") / "models"
    write_repository(folder)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[RunningServer]:
    with serving(repository.parent / "log", "--model-repository", repository, "--allow-client-shm=true") as running:
        yield running
        assert "Exception in callback" not in running.log
        assert "Traceback" not in running.log


@pytest.fixture(params=PROTOCOLS)
def caller(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Caller]:
    with calling(server, request.param) as made:
        yield made
    wait_until(lambda: not descriptors(server.process.pid), 5, "the server keeps no memory of clients open")


def random_row(columns: int) -> np.ndarray:
    return np.random.default_rng(columns).random((1, columns), np.float32)


def ask(
    caller: Caller, model: str, size: int, shape: list[int], names: str = "XY", offset: int = 0, **more: Any
) -> Any:
    given = caller.input(names[0] if len(names) == 2 else "INPUT0", "FP32", shape, "in", size, offset)
    wanted = caller.output(names[1] if len(names) == 2 else "OUTPUT0", "out", size, offset)
    return caller.client.infer(model, [given], outputs=[wanted], **more)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("model", [*DOUBLING, "same", "same_slow"])
def test_tensors_go_both_ways(caller: Caller, model: str, columns: int) -> None:
    x = random_row(columns)
    factor = 1 if model.startswith("same") else 2
    with memory(x.nbytes + 64) as source, memory(x.nbytes + 64) as target:
        source.put(x, 64)
        caller.register("in", source)
        caller.register("out", target)
        for request_id in ("", "7", 'a "quoted" one'):
            target.put(np.zeros_like(x), 64)
            names = "" if factor == 1 else "XY"
            found = ask(caller, model, x.nbytes, [1, columns], names, 64, request_id=request_id)
            assert np.array_equal(target.get(np.float32, [1, columns], 64), factor * x)
            output = found.get_output("OUTPUT0" if factor == 1 else "Y")
            described = output if isinstance(output, dict) else {"shape": list(output.shape)}
            assert described["shape"] == [1, columns]
            assert "data" not in described


def test_what_is_before_and_behind_stays(caller: Caller) -> None:
    x = random_row(30_000)
    with memory(x.nbytes + 128) as both:
        both.put(np.full(x.nbytes + 128, 7, np.uint8))
        both.put(x, 64)
        caller.register("in", both)
        caller.register("out", both)
        ask(caller, "doubles", x.nbytes, [1, 30_000], offset=64)
        assert np.array_equal(both.get(np.float32, [1, 30_000], 64), 2 * x)
        assert set(both.get(np.uint8, [64]).tolist()) == {7}
        assert set(both.get(np.uint8, [64], 64 + x.nbytes).tolist()) == {7}


def test_a_region_may_begin_inside_its_memory(caller: Caller) -> None:
    x = random_row(40_000)
    with memory(x.nbytes + 4096) as source, memory(x.nbytes) as target:
        source.put(x, 4096)
        caller.register("in", source, 4096, x.nbytes)
        caller.register("out", target)
        ask(caller, "doubles", x.nbytes, [1, 40_000])
        assert np.array_equal(target.get(np.float32, [1, 40_000]), 2 * x)


@pytest.mark.parametrize("model", ["doubles", "thread", "process"])
def test_one_side_alone(caller: Caller, model: str) -> None:
    x = random_row(30_000)
    with memory(x.nbytes) as shared:
        shared.put(x)
        caller.register("r", shared)
        given = caller.input("X", "FP32", [1, 30_000], "r", x.nbytes)
        for _ in range(2):
            assert np.array_equal(caller.client.infer(model, [given]).as_numpy("Y"), 2 * x)
        sent = caller.library.InferInput("X", [1, 30_000], "FP32")
        sent.set_data_from_numpy(x)
        for _ in range(2):
            shared.put(np.zeros_like(x))
            caller.client.infer(model, [sent], outputs=[caller.output("Y", "r", x.nbytes)])
            assert np.array_equal(shared.get(np.float32, [1, 30_000]), 2 * x)


@pytest.mark.parametrize("count", [3, 40_000])
@pytest.mark.parametrize("model", ["strings", "same_strings"])
def test_strings(caller: Caller, model: str, count: int) -> None:
    x = np.array([[b"x" * (i % 7) for i in range(count)]], np.object_)
    raw = serialize_byte_tensor(x).item()
    names = ("X", "Y") if model == "strings" else ("INPUT0", "OUTPUT0")
    with memory(len(raw)) as source, memory(len(raw) + 10) as target:
        source.put(np.frombuffer(raw, np.uint8))
        caller.register("in", source)
        caller.register("out", target)
        given = caller.input(names[0], "BYTES", [1, count], "in", len(raw))
        caller.client.infer(model, [given], outputs=[caller.output(names[1], "out", len(raw) + 10)])
        expected = x[:, ::-1] if model == "strings" else x
        written = target.get(np.uint8, [len(raw)]).tobytes()
        assert written == serialize_byte_tensor(np.ascontiguousarray(expected)).item()


@pytest.mark.parametrize("model", ["batched", "thread", "process", "shared"])
def test_callers_that_run_together_each_get_their_own(server: RunningServer, caller: Caller, model: str) -> None:
    columns, callers, rounds = 30_000, 4, 10
    size = 4 * columns
    before = server.statistics(model)["execution_count"]
    with memory(size * callers) as source, memory(size * callers) as target:
        caller.register("in", source)
        caller.register("out", target)

        def run(number: int) -> None:
            own = Caller(server, "http" if caller.library is PROTOCOLS["http"] else "grpc")
            for n in range(rounds):
                x = np.full((1, columns), 100 * number + n, np.float32)
                source.put(x, number * size)
                ask(own, model, size, [1, columns], offset=number * size)
                assert np.array_equal(target.get(np.float32, [1, columns], number * size), 2 * x)
            own.client.close()

        with ThreadPoolExecutor(callers) as pool:
            list(pool.map(run, range(callers)))
    assert server.statistics(model)["execution_count"] - before < callers * rounds


# What can go wrong


def refused(caller: Caller, model: str, inputs: list[Any], outputs: list[Any]) -> str:
    with pytest.raises(InferenceServerException) as failure:
        caller.client.infer(model, inputs, outputs=outputs)
    return str(failure.value.message())


@pytest.mark.parametrize("model", [*DOUBLING, "same"])
def test_memory_that_was_truncated_costs_its_own_request(server: RunningServer, caller: Caller, model: str) -> None:
    x = random_row(30_000)
    names = ("INPUT0", "OUTPUT0") if model == "same" else ("X", "Y")
    children = {p.pid for p in psutil.Process(server.process.pid).children()}
    with memory(x.nbytes) as source, memory(x.nbytes) as target, memory(x.nbytes) as good:
        good.put(x)
        for name, one in {"in": source, "out": target, "good": good, "well": good}.items():
            caller.register(name, one)
        os.truncate(source.path, 4096)
        given = [caller.input(names[0], "FP32", [1, 30_000], "in", x.nbytes)]
        wanted = [caller.output(names[1], "out", x.nbytes)]
        assert TEXT in refused(caller, model, given, wanted)
        healthy = [caller.input(names[0], "FP32", [1, 30_000], "good", x.nbytes)]
        os.truncate(target.path, 4096)
        assert TEXT.replace("'in'", "'out'") in refused(caller, model, healthy, wanted)
        # It was not made larger behind its owner's back.
        assert os.stat(target.path).st_size == 4096
        caller.client.infer(model, healthy, outputs=[caller.output(names[1], "well", x.nbytes)])
        assert np.array_equal(good.get(np.float32, [1, 30_000]), x if model == "same" else 2 * x)
    assert {p.pid for p in psutil.Process(server.process.pid).children()} == children


@pytest.mark.parametrize("model", ["batched", "thread", "process"])
def test_truncated_memory_does_not_hurt_others_of_the_batch(server: RunningServer, caller: Caller, model: str) -> None:
    x = random_row(30_000)
    protocol = "http" if caller.library is PROTOCOLS["http"] else "grpc"
    with memory(x.nbytes) as source, memory(x.nbytes) as bad, memory(4 * x.nbytes) as target:
        source.put(x)
        caller.register("good", source)
        caller.register("in", bad)
        caller.register("out", target)
        os.truncate(bad.path, 100)

        def run(number: int) -> str:
            own = Caller(server, protocol)
            region = "in" if number == 1 else "good"
            given = own.input("X", "FP32", [1, 30_000], region, x.nbytes)
            wanted = own.output("Y", "out", x.nbytes, number * x.nbytes)
            try:
                own.client.infer(model, [given], outputs=[wanted])
            except InferenceServerException as error:
                return str(error.message())
            finally:
                own.client.close()
            assert np.array_equal(target.get(np.float32, [1, 30_000], number * x.nbytes), 2 * x)
            return ""

        for _ in range(5):
            with ThreadPoolExecutor(4) as pool:
                texts = list(pool.map(run, range(4)))
            assert TEXT in texts[1]
            assert [texts[0], *texts[2:]] == ["", "", ""]


ATTACK = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
size = os.fstat(fd).st_size
data = os.pread(fd, size, 0)
while True:
    for left in (0, 100, size // 2):
        os.ftruncate(fd, left)
        os.ftruncate(fd, size)
        os.pwrite(fd, data, 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("model", ["doubles", "batched"])
def test_memory_that_is_truncated_all_the_time_hurts_nobody_else(
    server: RunningServer, caller: Caller, model: str
) -> None:
    """Also while it is being copied: the process of the model goes on, and so do its other requests."""
    x = random_row(30_000)
    protocol = "http" if caller.library is PROTOCOLS["http"] else "grpc"
    children = {p.pid for p in psutil.Process(server.process.pid).children()}
    with memory(x.nbytes) as bad, memory(x.nbytes) as source, memory(4 * x.nbytes) as target:
        bad.put(x)
        source.put(x)
        for name, one in {"bad": bad, "good": source, "out": target}.items():
            caller.register(name, one)

        def run(number: int) -> list[str]:
            own, texts = Caller(server, protocol), []
            given = own.input("X", "FP32", [1, 30_000], "bad" if number < 2 else "good", x.nbytes)
            place = ("bad", x.nbytes) if number == 1 else ("out", x.nbytes, number * x.nbytes)
            for _ in range(40):
                try:
                    own.client.infer(model, [given], outputs=[own.output("Y", *place)])
                except InferenceServerException as error:
                    texts.append(str(error.message()))
                    assert number < 2, texts
                    continue
                if number > 1:
                    found = target.get(np.float32, [1, 30_000], number * x.nbytes)
                    assert np.array_equal(found, 2 * x)
            own.client.close()
            return texts

        attacker = subprocess.Popen([sys.executable, "-c", ATTACK, bad.path])
        try:
            with ThreadPoolExecutor(4) as pool:
                texts = [text for found in pool.map(run, range(4)) for text in found]
        finally:
            attacker.kill()
            attacker.wait()
        assert all("is not as large as it was when it was registered" in text for text in texts), texts
    assert {p.pid for p in psutil.Process(server.process.pid).children()} == children


@pytest.mark.parametrize("columns", [4, 30_000])
@pytest.mark.parametrize("model", [*DOUBLING, "same"])
def test_an_output_that_does_not_fit(caller: Caller, model: str, columns: int) -> None:
    x = random_row(columns)
    names = ("INPUT0", "OUTPUT0") if model == "same" else ("X", "Y")
    with memory(x.nbytes) as both:
        both.put(x)
        caller.register("in", both)
        given = [caller.input(names[0], "FP32", [1, columns], "in", x.nbytes)]
        text = refused(caller, model, given, [caller.output(names[1], "in", x.nbytes - 1)])
        assert text.endswith(
            f"shared memory size specified with the request for output '{names[1]}' ({x.nbytes - 1} bytes) should be "
            f"at least {x.nbytes} bytes to hold the results"
        )
        assert np.array_equal(both.get(np.float32, [1, columns]), x)


@pytest.mark.parametrize("model", ["doubles", "thread", "same"])
def test_a_file_of_holes_takes_no_memory(server: RunningServer, caller: Caller, model: str) -> None:
    size = 1 << 40
    names = ("INPUT0", "OUTPUT0") if model == "same" else ("X", "Y")
    with memory(4096) as shared:
        os.truncate(shared.path, size)
        caller.register("in", shared, 0, size)
        before = server.memory_bytes()
        given = [caller.input(names[0], "FP32", [1, size // 4], "in", size)]
        text = refused(caller, model, given, [caller.output(names[1], "in", size)])
        assert "of which 4096 bytes have been written" in text or "of which 0 bytes have been written" in text
        assert server.memory_bytes() < before + 50e6


def test_parts_outside_of_a_region(caller: Caller) -> None:
    with memory(4096) as shared:
        caller.register("r", shared)
        wanted = [caller.output("Y", "r", 16)]

        def text(size: int, offset: int, region: str = "r") -> str:
            return refused(caller, "doubles", [caller.input("X", "FP32", [1, 4], region, size, offset)], wanted)

        assert text(16, 4096) == "Invalid offset for shared memory region: 'r'"
        assert text(16, 2**62) == "Invalid offset for shared memory region: 'r'"
        assert text(16, 4088) == "Invalid offset + byte size for shared memory region: 'r'"
        assert text(16, 0, "other") == "Unable to find shared memory region: 'other'"
        assert "input byte size mismatch for input 'X'" in text(20, 0)
        far = [caller.input("X", "FP32", [1, 4], "r", 16)]
        outside = [caller.output("Y", "r", 2**63 - 1, 1)]
        assert refused(caller, "doubles", far, outside) == "Invalid offset + byte size for shared memory region: 'r'"


def test_a_name_that_stands_for_other_memory_by_then(caller: Caller) -> None:
    """Requests alike are remembered; the memory that they name is not."""
    one, two = random_row(30_000), random_row(30_000) + 1
    with memory(one.nbytes) as first, memory(one.nbytes) as second, memory(one.nbytes) as target:
        first.put(one)
        second.put(two)
        caller.register("out", target)
        for source, expected in ((first, one), (second, two), (first, one)):
            caller.register("in", source)
            for _ in range(3):
                ask(caller, "doubles", one.nbytes, [1, 30_000])
                assert np.array_equal(target.get(np.float32, [1, 30_000]), 2 * expected)
            caller.client.unregister_system_shared_memory("in")
            with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'in'"):
                ask(caller, "doubles", one.nbytes, [1, 30_000])


@pytest.mark.parametrize("columns", [4, 30_000])
@pytest.mark.parametrize("in_region", ["A", "B", "AB"])
def test_one_input_in_a_region_and_one_beside(caller: Caller, columns: int, in_region: str) -> None:
    """Again and again, since requests alike are remembered."""
    size, rng = 4 * columns, np.random.default_rng(0)
    with memory(2 * size) as source:
        caller.register("in", source)
        for _ in range(4):
            rows = {name: rng.random((1, columns), np.float32) for name in "AB"}
            given = []
            for place, (name, row) in enumerate(rows.items()):
                if name in in_region:
                    source.put(row, place * size)
                    given.append(caller.input(name, "FP32", [1, columns], "in", size, place * size))
                else:
                    given.append(caller.library.InferInput(name, [1, columns], "FP32"))
                    given[-1].set_data_from_numpy(row)
            found = caller.client.infer("adds", given).as_numpy("Y")
            assert np.array_equal(found, rows["A"] + rows["B"])


def runs_one(server: RunningServer) -> bool:
    page = server.metrics_page()
    waits_none = 'nv_inference_pending_request_count{model="gate",version="1"} 0\n'
    return "\nnaiad_requests_in_flight 1\n" in page and waits_none in page


def listed(caller: Caller) -> set[str]:
    """The names of the regions in the status."""
    status = caller.client.get_system_shared_memory_status()
    return {r["name"] for r in status} if isinstance(status, list) else set(status.regions)


@pytest.mark.parametrize("columns", [4, 30_000])
def test_a_region_is_listed_until_the_requests_that_use_it_are_answered(
    server: RunningServer, caller: Caller, repository: Path, columns: int
) -> None:
    """Also one whose inputs alone lie there, and were read before the model runs."""
    x = random_row(columns)
    gate = repository / "gate" / "open"
    protocol = "http" if caller.library is PROTOCOLS["http"] else "grpc"

    def ask_for_sum() -> Any:
        asker = Caller(server, protocol)
        return asker.client.infer("gate", [asker.input("X", "FP32", [1, columns], "in", x.nbytes)]).as_numpy("Y")

    with memory(x.nbytes) as source, ThreadPoolExecutor(1) as pool:
        try:
            source.put(x)
            caller.register("in", source)
            for _ in range(2):  # requests alike are remembered
                gate.touch()
                ask_for_sum()
                gate.unlink()
            running = pool.submit(ask_for_sum)
            wait_until(lambda: runs_one(server), 10, "the request runs")
            caller.client.unregister_system_shared_memory("in")
            assert listed(caller) == {"in"}
            with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'in'"):
                ask_for_sum()
        finally:
            gate.touch()
        assert np.array_equal(running.result(20), 2 * x)
        gate.unlink()
        wait_until(lambda: listed(caller) == set(), 5, "the region is gone from the status")


def test_unregistered_while_a_request_uses_it(server: RunningServer, caller: Caller, repository: Path) -> None:
    x = random_row(30_000)
    gate = repository / "gate" / "open"
    protocol = "http" if caller.library is PROTOCOLS["http"] else "grpc"
    with memory(x.nbytes) as source, memory(x.nbytes) as target, ThreadPoolExecutor(2) as pool:
        try:
            source.put(x)
            caller.register("in", source)
            caller.register("out", target)
            running = [pool.submit(ask, Caller(server, protocol), "gate", x.nbytes, [1, 30_000]) for _ in range(2)]
            server.wait_pending("gate", 1)
            caller.client.unregister_system_shared_memory()
            # The names are free at once.
            caller.register("in", target)
            caller.client.unregister_system_shared_memory("in")
        finally:
            gate.touch()
        for one in running:
            one.result(20)
        gate.unlink()
        assert np.array_equal(target.get(np.float32, [1, 30_000]), 2 * x)
    children = psutil.Process(server.process.pid).children()
    wait_until(lambda: not any(descriptors(p.pid) for p in children), 5, "no process of a model keeps it open")


def test_a_model_may_keep_what_it_was_given(caller: Caller) -> None:
    with memory(160_000) as source:
        caller.register("in", source)
        given = caller.input("X", "FP32", [1, 40_000], "in", 160_000)
        expected: list[int] = []
        before = None
        for number in range(1, 5):
            source.put(np.full((1, 40_000), number, np.float32))
            kept = caller.client.infer("keeps", [given]).as_numpy("Y")[0].tolist()
            before = kept[:-1] if before is None else before
            expected.append(number)
            assert kept == [*before, *expected]


def test_a_process_that_dies_gets_its_memory_again(server: RunningServer, caller: Caller) -> None:
    with memory(160_000) as source, memory(160_000) as target:
        caller.register("in", source)
        caller.register("out", target)
        for what in (0, 2, 0):
            source.put(np.full((1, 40_000), what, np.float32))
            if what:
                with pytest.raises(InferenceServerException, match="is not healthy"):
                    ask(caller, "misbehaves", 160_000, [1, 40_000])
                wait_until(lambda: server.get("/v2/models/misbehaves/ready").status == 200, 20, "it runs again")
            else:
                ask(caller, "misbehaves", 160_000, [1, 40_000])
                assert not target.get(np.float32, [1, 40_000]).any()


def test_streams_and_decoupled_models(server: RunningServer) -> None:
    caller = Caller(server, "grpc")
    found: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    with memory(160_000) as source, memory(160_000) as target:
        source.put(np.full(40_000, 3, np.float32))
        caller.register("in", source)
        caller.register("out", target)
        caller.client.start_stream(lambda result, error: found.put((result, error)))
        given = caller.input("X", "FP32", [40_000], "in", 160_000)
        wanted = caller.output("Y", "out", 160_000)
        caller.client.async_stream_infer("repeats", [given], outputs=[wanted])
        for _ in range(3):
            result, error = found.get(timeout=20)
            assert error is None
            assert result.get_response().raw_output_contents == [b""]
        assert (target.get(np.float32, [40_000]) == 2).all()
        small = caller.output("Y", "out", 8)
        caller.client.async_stream_infer("repeats", [given], outputs=[small])
        for _ in range(3):
            _, error = found.get(timeout=20)
            assert "(8 bytes) should be at least 160000 bytes" in str(error)
        row = caller.input("X", "FP32", [1, 40_000], "in", 160_000)
        for model in ("doubles", "thread", "same_slow"):
            names = ("INPUT0", "OUTPUT0") if model == "same_slow" else ("X", "Y")
            row = caller.input(names[0], "FP32", [1, 40_000], "in", 160_000)
            caller.client.async_stream_infer(model, [row], outputs=[caller.output(names[1], "out", 160_000)])
            result, error = found.get(timeout=20)
            assert error is None
            assert (target.get(np.float32, [40_000]) == (3 if model == "same_slow" else 6)).all()
        caller.client.stop_stream()
        caller.client.unregister_system_shared_memory()
    caller.client.close()


def test_large_json_beside_a_region(server: RunningServer, tmp_path: Path) -> None:
    """It is read in a process of its own, which leaves the region to the server."""
    caller = Caller(server, "http")
    x = np.full((1, 4), 1.5, np.float32)
    with memory(16) as source:
        source.put(x)
        caller.register("in", source)
        part = {"shared_memory_region": "in", "shared_memory_byte_size": 16}
        given = {"name": "X", "datatype": "FP32", "shape": [1, 4], "parameters": part}
        answer = server.infer("doubles", {"inputs": [given], "parameters": {"much": "x" * 1_200_000}})
        assert answer.json()["outputs"][0]["data"] == [3, 3, 3, 3]
        caller.client.unregister_system_shared_memory()
    caller.client.close()


# Registering


def test_the_status(caller: Caller) -> None:
    with memory(4096) as shared:
        caller.register("b", shared, 1024, 64)
        caller.register("a c", shared)
        found = caller.client.get_system_shared_memory_status()
        if caller.library is PROTOCOLS["grpc"]:
            rows = {n: (r.name, r.key, r.offset, r.byte_size) for n, r in found.regions.items()}
            one = caller.client.get_system_shared_memory_status("b").regions
            assert list(one) == ["b"]
        else:
            rows = {r["name"]: (r["name"], r["key"], r["offset"], r["byte_size"]) for r in found}
            assert [r["name"] for r in caller.client.get_system_shared_memory_status("b")] == ["b"]
        assert rows == {"a c": ("a c", shared.key, 0, 4096), "b": ("b", shared.key, 1024, 64)}
        with pytest.raises(InferenceServerException, match="Unable to find system shared memory region: 'zz'"):
            caller.client.get_system_shared_memory_status("zz")
        with pytest.raises(InferenceServerException, match="shared memory region 'b' already in manager"):
            caller.register("b", shared)
        caller.client.unregister_system_shared_memory("zz")


def test_the_extensions_are_named(server: RunningServer) -> None:
    named = server.get("/v2").json()["extensions"]
    assert {"system_shared_memory", "cuda_shared_memory"} <= set(named)
    paths = server.get("/openapi.json").json()["paths"]
    assert "/v2/systemsharedmemory/region/{region}/register" in paths


@pytest.mark.parametrize("kind", ["region", "file", "pipe", "folder", "link", "far link"])
def test_what_is_no_shared_memory_object(caller: Caller, tmp_path: Path, kind: str) -> None:
    key = f"/naiad-test-odd-{os.getpid()}"
    path = Path("/dev/shm" + key)
    (tmp_path / "file").write_bytes(bytes(4096))
    keys = {"region": key, "file": f"/../../{tmp_path}/file", "folder": "/."}
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "file")
    elif kind == "far link":
        path.symlink_to("/dev/zero")
    try:
        with pytest.raises(InferenceServerException, match="Unable to open shared memory region: '/"):
            caller.client.register_system_shared_memory("r", keys.get(kind, key), 16)
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.slow
def test_many_rounds_leave_nothing_open(server: RunningServer, caller: Caller) -> None:
    x = random_row(30_000)
    with memory(x.nbytes) as shared:
        shared.put(x)
        processes = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children()]
        caller.register("in", shared)
        given = caller.input("X", "FP32", [1, 30_000], "in", x.nbytes)
        caller.client.infer("doubles", [given])
        caller.client.unregister_system_shared_memory()
        wait_until(lambda: not any(descriptors(p.pid) for p in processes), 5, "nothing is open")
        before = [p.num_fds() for p in processes]
        for number in range(1000):
            caller.register("in", shared)
            if number % 10 == 0:
                caller.client.infer("doubles", [given])
            caller.client.unregister_system_shared_memory("in")
        wait_until(lambda: not any(descriptors(p.pid) for p in processes), 5, "nothing is open")
        assert all(now.num_fds() <= then + 3 for now, then in zip(processes, before, strict=True))


@pytest.mark.slow
def test_it_is_off_unless_allowed(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "same", identity("TYPE_FP32"))
    disabled = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        assert "system_shared_memory" not in server.get("/v2").json()["extensions"]
        for protocol in PROTOCOLS:
            caller = Caller(server, protocol)
            with pytest.raises(InferenceServerException, match="Client shared memory is disabled"):
                caller.client.register_system_shared_memory("r", "/none", 16)
            given = [caller.input("INPUT0", "FP32", [4], "r", 16)]
            assert refused(caller, "same", given, []) == disabled
            sent = caller.library.InferInput("INPUT0", [1], "FP32")
            sent.set_data_from_numpy(np.ones(1, np.float32))
            assert refused(caller, "same", [sent], [caller.output("OUTPUT0", "r", 16)]) == disabled
            caller.client.close()


def test_no_devices(caller: Caller) -> None:
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("there is a device")
    import base64

    handle = base64.b64encode(bytes(64))
    with pytest.raises(InferenceServerException, match="region: 'c', GPUs not supported"):
        caller.client.register_cuda_shared_memory("c", handle, 0, 64)
    with pytest.raises(InferenceServerException, match="'raw_handle' must be a valid base64 encoded"):
        caller.client.register_cuda_shared_memory("c", base64.b64encode(bytes(8)), 0, 64)
    with pytest.raises(InferenceServerException, match="Unable to find cuda shared memory region: 'c'"):
        caller.client.get_cuda_shared_memory_status("c")
    caller.client.unregister_cuda_shared_memory("c")
    caller.client.unregister_cuda_shared_memory()
