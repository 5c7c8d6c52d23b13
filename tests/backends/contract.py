"""The contract of framework backends. ``support/framework.py`` says how a backend gets it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, ClassVar, TypeVar

import grpc
import ml_dtypes
import numpy as np
import psutil
import pytest

from naiad.backend_api.backend import Arrays
from naiad.tensor.dtypes import BY_CONFIG, BY_WIRE
from naiad.testing import wait_until
from support.backend_contract import BackendContract, Case, context, spec, values
from support.core_policies import CORES, WHY_NOT
from support.framework import FAILING_INDEX, Framework, Pair, Signature, Tensor
from support.framework_cores import WIDE, assert_on_cores
from support.framework_server import CALL_S, ONE, FrameworkServer, Write, framework_server, same

Test = TypeVar("Test", bound=Callable[..., object])
OUTSIDE = ("process", "shared")
HIDDEN = 8
LARGE = 2_400_000
"""Units of a network of 64 MiB."""
MIB = 1 << 20
# Short, since most requests come alone and wait for it; the requests of a batch arrive together.
BATCHING = ONE + "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 20000 }\n"
RAGGED = """max_batch_size: 16
dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 3000000 }
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "C" data_type: TYPE_INT32 dims: [ 1 ] } ]
batch_input [ { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "I" data_type: TYPE_INT32 source_input: "X" } ]
batch_output [ { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "Y" source_input: "X" } ]
"""


def whole(framework: Framework) -> Framework:
    """The framework with nothing left out for being slow, where ``NAIAD_WHOLE_CONTRACT`` asks for that."""
    if not os.environ.get("NAIAD_WHOLE_CONTRACT"):
        return framework
    reloads = (framework.reloads[0], 100)
    return replace(framework, brief_modes=(), others_not_in=(), reloads=reloads, reloads_shared=True)


def needs(*parts: str) -> Callable[[Test], Test]:
    """A test that is skipped, with the reason, for a framework that lacks one of these parts."""

    def mark(test: Test) -> Test:
        test.needs = parts  # type: ignore[attr-defined]
        return test

    return mark


def loads_more(test: Test) -> Test:
    """A test that loads models of its own or loads one again: in process mode each load imports the framework."""
    test.loads_more = True  # type: ignore[attr-defined]
    return test


def loads_another(test: Test) -> Test:
    """A test of another file than the network, of which a shared process says all (``Framework.others_not_in``)."""
    test.loads_another = True  # type: ignore[attr-defined]
    return test


def reloads(test: Test) -> Test:
    """A test that loads a model again and again, outside the server only where the framework says how often."""
    test.reloads = True  # type: ignore[attr-defined]
    return test


def only(*modes: str) -> Callable[[Test], Test]:
    """A test for these modes alone."""

    def mark(test: Test) -> Test:
        test.modes = modes  # type: ignore[attr-defined]
        return test

    return mark


class FrameworkContract:
    """What every framework's backend does, in threads of the server, in processes and in shared ones."""

    framework: ClassVar[Framework]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test in the modes that concern it; skip what the framework lacks, by name."""
        framework, test = whole(self.framework), metafunc.function
        missing = [part for part in getattr(test, "needs", ()) if part in framework.lacks]
        reason = "; ".join(f"{framework.name} lacks {part}: {framework.lacks[part]}" for part in missing)
        skipped = [pytest.mark.skip(reason=reason)] if missing else []
        asked = [mode for mode in framework.modes if mode in getattr(test, "modes", framework.modes)]
        more = bool(getattr(test, "loads_more", False))
        left_out = set(framework.brief_modes if more else ())
        if getattr(test, "loads_another", False):
            left_out.update(framework.others_not_in)
        if getattr(test, "reloads", False):
            left_out.update(() if framework.process_reloads else ("process",))
            left_out.update(() if framework.reloads_shared else ("shared",))
        modes = [mode for mode in asked if mode not in left_out]
        for name in {"served", "mode"} & set(metafunc.fixturenames):
            found = [pytest.param(m, marks=[*skipped, *_pace(framework, m, more)]) for m in modes]
            metafunc.parametrize(name, found, indirect=name == "served", scope="class" if name == "served" else None)
        if "damage" in metafunc.fixturenames:
            metafunc.parametrize("damage", sorted(framework.broken))
        if "group" in metafunc.fixturenames:
            # A framework without an identity is skipped for that reason, not for want of parameters.
            metafunc.parametrize("group", framework.datatypes or [()], ids=_group_name)

    # Cores

    @pytest.mark.slow
    @pytest.mark.skipif(len(CORES) < 2, reason=WHY_NOT)
    @only("thread", "process")
    @loads_more
    def test_every_thread_of_an_instance_is_on_the_cores_of_its_policy(self, served: FrameworkServer) -> None:
        assert_on_cores(served, network(served), writes(served.framework, hidden=WIDE), random_inputs)

    # Loading

    def test_a_model_loads_and_describes_itself(self, served: FrameworkServer) -> None:
        signature = network(served)
        metadata = served.metadata("network")
        assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == with_rows(signature.inputs)
        assert [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs] == with_rows(signature.outputs)
        assert served.is_ready("network")

    @loads_another
    def test_a_configuration_is_completed_from_the_file(self, served: FrameworkServer) -> None:
        if served.framework.auto_complete:
            served.write("bare", writes(served.framework), config="")
            assert_says(served.load_error("bare"), served.framework.auto_complete)
            return
        with served.serving("bare", writes(served.framework), config="") as signature:
            found = served.config("bare")
            assert found.max_batch_size == served.framework.completed_batch_size
            assert described(found.input) == [(t.name, t.wire, t.dims) for t in signature.inputs]
            assert described(found.output) == [(t.name, t.wire, t.dims) for t in signature.outputs]
            self._assert_exact(served, "bare", signature, 1)

    @loads_another
    @loads_more
    def test_files_that_do_not_load(self, served: FrameworkServer, damage: str) -> None:
        own = network(served)
        done = served.framework.broken[damage]
        model = f"broken_{damage}"
        served.write(model, writes(served.framework))
        # Else a version without its only file would be an empty folder.
        (served.path(model).parent / "note.txt").write_text("not a model")
        done.apply(served.path(model))
        assert_says(served.load_error(model), done.words)
        assert not served.is_ready(model)
        served.wait_settled()
        self._assert_exact(served, "network", own, 1)

    @loads_another
    @loads_more
    @needs("wrong_name")
    def test_a_name_that_is_not_in_the_model(self, served: FrameworkServer) -> None:
        self._assert_mismatch(served, "name", lambda t: Tensor("wrong", t.wire, t.dims))

    @loads_another
    @loads_more
    @needs("wrong_datatype")
    def test_a_datatype_that_is_not_the_models(self, served: FrameworkServer) -> None:
        self._assert_mismatch(served, "datatype", lambda t: Tensor(t.name, "INT32", t.dims))

    @loads_another
    @loads_more
    @needs("wrong_dims")
    def test_dims_that_are_not_the_models(self, served: FrameworkServer) -> None:
        self._assert_mismatch(served, "dims", lambda t: Tensor(t.name, t.wire, (*t.dims[:-1], t.dims[-1] + 1)))

    # Results

    def test_results_are_those_of_the_framework(self, served: FrameworkServer) -> None:
        signature = network(served)
        for rows in (1, 2, 8):
            self._assert_exact(served, "network", signature, rows)

    def test_requests_become_batches_and_each_gets_its_own_rows(self, served: FrameworkServer) -> None:
        signature = network(served)
        inputs = [random_inputs(signature, 1 + n % 3, n) for n in range(48)]
        before = served.executions("network")
        results = served.infer_all("network", inputs)
        assert served.executions("network") - before < len(inputs)
        for given, found in zip(inputs, results, strict=True):
            # A framework may compute a batch of another size with another kernel, which sums in another order.
            self._assert_close(served, "network", signature, given, found, max(1e-5, served.framework.tolerance))

    def test_other_shapes_are_refused(self, served: FrameworkServer) -> None:
        signature = network(served)
        (tensor,) = signature.inputs
        dims = tensor.dims
        for shape in ((1, *dims[:-1], dims[-1] + 1), (1, *dims, 1), dims, (9, *dims), (0, *dims)):
            code, text = served.infer_error("network", {tensor.name: np.zeros(shape, np.float32)})
            assert code == grpc.StatusCode.INVALID_ARGUMENT, (shape, text)
        self._assert_exact(served, "network", signature, 1)

    # Datatypes

    @loads_another
    @needs("identity")
    def test_every_datatype_is_kept_bit_by_bit(self, served: FrameworkServer, group: tuple[str, ...]) -> None:
        inputs = {f"IN_{wire}": limits(wire, 2) for wire in group}
        self._assert_identity(served, group, inputs)

    @loads_another
    @needs("identity", "zero_size")
    def test_tensors_of_no_size(self, served: FrameworkServer, group: tuple[str, ...]) -> None:
        signature = identities(served, group)
        if any(-1 not in tensor.dims for tensor in signature.inputs):
            pytest.skip(f"{served.framework.name} has fixed dims for {group}")
        inputs = {f"IN_{wire}": limits(wire, 3)[:, :0] for wire in group}
        self._assert_identity(served, group, inputs)

    @loads_another
    @needs("identity")
    def test_tokens_of_many_lengths(self, served: FrameworkServer) -> None:
        """Requests of unequal length, which the configuration does not make ragged, are run apart."""
        group = next((group for group in served.framework.datatypes if "INT64" in group), None)
        if group is None:
            pytest.skip(f"{served.framework.name} has no INT64")
        signature = identities(served, group)
        if any(-1 not in tensor.dims for tensor in signature.inputs):
            pytest.skip(f"{served.framework.name} has fixed dims for {group}")
        rest = {f"IN_{wire}": limits(wire, 1) for wire in group}
        # Beyond 2^53 a number that goes through a float is another one.
        tokens = [np.arange(n, dtype=np.int64)[None] * 3 + (1 << 53) + 1 for n in (1, 7, 513, 7, 2, 1000)]
        found = served.infer_all(model_of(group), [{**rest, "IN_INT64": each} for each in tokens])
        for each, outputs in zip(tokens, found, strict=True):
            assert same(outputs, {"OUT_INT64": each})

    @loads_another
    @needs("identity")
    def test_texts(self, served: FrameworkServer) -> None:
        group = next((group for group in served.framework.datatypes if "BYTES" in group), None)
        if group is None:
            pytest.skip(f"{served.framework.name} has no strings")
        rest = {f"IN_{wire}": limits(wire, 4) for wire in group}
        texts = np.array([[b""], ["é\0名".encode()], [b"x" * 100_000], [b"\n"]], object)
        self._assert_identity(served, group, {**rest, "IN_BYTES": texts})
        other = {**rest, "IN_BYTES": np.array([[b"a"], [b"\xff\xfe"], [b""], [b"b"]], object)}
        if served.framework.strings == "bytes":
            self._assert_identity(served, group, other)
        else:
            code, text = served.infer_error(model_of(group), other)
            assert code == grpc.StatusCode.INVALID_ARGUMENT and "element 1 is not UTF-8" in text

    # Shapes and names

    @loads_another
    @loads_more
    @needs("scalar")
    def test_scalars(self, served: FrameworkServer) -> None:
        assert served.framework.scalar
        with served.serving("scalar", served.framework.scalar) as signature:
            (x,), (y,) = signature.inputs, signature.outputs
            shape = (2, 1) if signature.max_batch_size else (1,)
            found = served.infer("scalar", {x.name: np.full(shape, 1.5, np.float32)})
            assert same(found, {y.name: np.full(shape, 3, np.float32)})

    @loads_another
    @loads_more
    @needs("identity", "odd_names")
    def test_odd_names(self, served: FrameworkServer) -> None:
        assert served.framework.identity
        pairs = [Pair(name, f"{name}_out", "FP32") for name in served.framework.odd_names]
        with served.serving("odd", partial(_written, served.framework.identity, pairs)) as signature:
            inputs = {t.name: filled(t, 2, i) for i, t in enumerate(signature.inputs)}
            found = served.infer("odd", inputs)
            assert same(found, {f"{name}_out": array for name, array in inputs.items()})
            assert len(found) == len(inputs)

    @loads_another
    @loads_more
    @needs("ragged")
    def test_ragged_requests_run_together_where_that_is_configured(self, served: FrameworkServer) -> None:
        def write(path: Path) -> Signature:
            assert served.framework.ragged
            served.framework.ragged(path)
            return Signature((), ())

        with served.serving("ragged", write, config=RAGGED):
            given = [np.arange(n, dtype=np.float32)[None] for n in (3, 5, 1, 9)]
            found = served.infer_all("ragged", [{"X": array} for array in given])
            assert served.executions("ragged") == 1
            for array, outputs in zip(given, found, strict=True):
                assert same(outputs, {"Y": array * 2})
            # Each knows where its elements end, in the order of their arrival.
            ends = sorted(int(outputs["C"][0, 0]) for outputs in found)
            assert sorted(np.diff([0, *ends]).tolist()) == [1, 3, 5, 9]

    # Several at once

    @loads_more
    def test_several_instances(self, served: FrameworkServer) -> None:
        two = ONE.replace("count: 1", "count: 2")
        network(served)
        before = len(served.processes())
        with served.serving("twins", writes(served.framework, 3), two) as signature:
            assert len(served.processes()) == before + (2 if served.mode == "process" else 0)
            assert served.config("twins").instance_group[0].count == 2
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda n: self._assert_exact(served, "twins", signature, 1 + n % 2, n), range(24)))

    @loads_more
    def test_models_load_at_once_while_another_serves(self, served: FrameworkServer) -> None:
        own = network(served)
        seeds = {"left": 1, "right": 2}
        with asked_all_the_time(served, "network", own) as counted:
            for model, seed in seeds.items():
                served.write(model, writes(served.framework, seed))
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(served.load, seeds))
            for n in range(10):
                for model in seeds:
                    self._assert_exact(served, model, own, 1, n)
            for model in seeds:
                served.unload(model)
        assert counted.failures == [] and counted.responses > 0
        assert not served.is_ready("left") and served.is_ready("network")

    # Failures

    @loads_another
    @needs("failing")
    def test_a_model_that_fails_in_every_third_run(self, served: FrameworkServer) -> None:
        assert served.framework.failing
        with served.serving("failing", served.framework.failing):
            processes = served.processes()
            for n in range(30):
                if n % 3 == 2:
                    given = {"INDEX": np.array([[FAILING_INDEX]], np.int64)}
                    assert_says(served.infer_error("failing", given)[1], served.framework.failure)
                else:
                    found = served.infer("failing", {"INDEX": np.array([[n % 4]], np.int64)})
                    assert same(found, {"VALUE": np.array([[10 + n % 4]], np.float32)})
            assert served.processes() == processes, "no process was started again"
            statistics = served.server.statistics("failing")["inference_stats"]
            assert (statistics["success"]["count"], statistics["fail"]["count"]) == (20, 10)

    @only(*OUTSIDE)
    @loads_more
    def test_a_killed_process_is_replaced(self, served: FrameworkServer) -> None:
        signature = network(served)
        given = random_inputs(signature, 1, 0)
        expected = served.infer("network", given)
        killed = served.processes()
        for process in killed:
            # So that none of the requests has its response before the kill.
            process.suspend()
        waits = [served.begin("network", given) for _ in range(20)]
        for process in killed:
            process.kill()
        for wait in waits:
            try:
                # They may share a batch, unlike the one before.
                assert_close(wait(), expected, served.framework.tolerance)
            except grpc.RpcError as error:
                # Those that ran: whether they may run twice is the caller's to say.
                assert error.code() == grpc.StatusCode.UNAVAILABLE, error.details()
        wait_until(lambda: not set(killed) & set(served.processes()), CALL_S, "the processes end")
        served.wait_settled()
        self._assert_exact(served, "network", signature, 2)

    # Memory

    @only("shared")
    @needs("identity")
    def test_an_unload_unmaps_large_tensors(self, served: FrameworkServer) -> None:
        """In a process that goes on for other models."""
        network(served)
        assert served.framework.identity
        (process,) = served.processes()
        with served.serving("tensors", partial(_written, served.framework.identity, [Pair("A", "X", "FP32")])) as s:
            given = filled(replace(s.inputs[0], dims=(3 << 18,)), 1, 7)
            assert same(served.infer("tensors", {"A": given}), {"X": given})
            assert shared_memory(process), "tensors of 3 MiB go through shared memory"
        wait_until(lambda: not shared_memory(process), CALL_S, "it is unmapped")

    @pytest.mark.slow
    @only("process")
    @loads_more
    @needs("memory")
    def test_an_unload_gives_the_memory_back(self, served: FrameworkServer) -> None:
        before = served.private_memory_bytes()
        with served.serving("large", writes(served.framework, hidden=LARGE)) as signature:
            self._assert_close_run(served, "large", signature)
            loaded = served.private_memory_bytes()
        after = served.private_memory_bytes()
        taken, returned = loaded - before, loaded - after
        assert taken > 60 * MIB
        assert returned >= 0.95 * taken, f"{returned / MIB:.1f} of {taken / MIB:.1f} MiB came back"

    @pytest.mark.slow
    @pytest.mark.timeout(600)
    @reloads
    def test_reloads_do_not_grow_the_server(self, mode: str, tmp_path: Path) -> None:
        """After 20 reloads of 280 KB of weights come 100, or fewer of larger weights: what all would leave is the same.

        With one arena for all threads: otherwise the allocator keeps some memory for each thread that loads, a few MiB
        in all. What is compared are the most that the first reloads leave and the least that the last fifth leaves: the
        allocator returns memory now and then, and some frameworks leave garbage that waits for a collection.
        """
        framework = whole(self.framework)
        counts = framework.process_reloads if mode == "process" else framework.reloads
        assert counts is not None
        before, after = counts
        hidden = HIDDEN if "memory" in framework.lacks else 1_000_000 // after
        with framework_server(self.framework, mode, tmp_path, MALLOC_ARENA_MAX="1") as served:
            network(served)
            signature = served.write("again", writes(self.framework, hidden=hidden))

            def reload() -> int:
                served.load("again")
                self._assert_close_run(served, "again", signature)
                served.unload("again")
                return served.anonymous_memory_bytes()

            first = max(reload() for _ in range(before))
            last = min([reload() for _ in range(after)][-max(5, after // 5) :])
            print(f"{framework.name}, {mode}: {first / MIB:.1f} MiB, after {after} reloads {last / MIB:.1f} MiB")
            assert last <= 1.02 * first, f"{first / MIB:.1f} MiB became {last / MIB:.1f} MiB"

    # What the tests share

    def _assert_mismatch(self, served: FrameworkServer, what: str, change: Callable[[Tensor], Tensor]) -> None:
        own = network(served)
        wrong = Signature(tuple(map(change, own.inputs)), own.outputs, own.max_batch_size, own.more)
        model = f"wrong_{what}"
        served.write(model, writes(served.framework), config=wrong.text())
        assert_says(served.load_error(model), served.framework.mismatches[what])
        assert not served.is_ready(model)

    def _assert_exact(
        self, served: FrameworkServer, model: str, signature: Signature, rows: int, seed: int = 0
    ) -> None:
        given = random_inputs(signature, rows, seed)
        found = served.infer(model, given)
        self._assert_close(served, model, signature, given, found, served.framework.tolerance)

    def _assert_close_run(self, served: FrameworkServer, model: str, signature: Signature) -> None:
        given = random_inputs(signature, 1, 0)
        # Wide layers are summed in parts, as many as there are threads.
        self._assert_close(served, model, signature, given, served.infer(model, given), 1e-3)

    def _assert_close(
        self,
        served: FrameworkServer,
        model: str,
        signature: Signature,
        given: Arrays,
        found: Arrays,
        tolerance: float,
    ) -> None:
        expected = served.framework.run(served.path(model), given)
        assert_close(found, {tensor.name: expected[tensor.name] for tensor in signature.outputs}, tolerance)

    def _assert_identity(self, served: FrameworkServer, group: tuple[str, ...], inputs: Arrays) -> None:
        identities(served, group)
        found = served.infer(model_of(group), inputs)
        for wire in group:
            assert same(found, {f"OUT_{wire}": inputs[f"IN_{wire}"]}), wire


class InstanceContract(BackendContract):
    """The contract of all backends, for a framework with an ``identity``."""

    framework: ClassVar[Framework]

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.framework.name

    @property
    def wires(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.framework.wires

    def echo(self, folder: Path, wire: str, rows: int) -> Case:
        if wire not in self.wires or self.framework.identity is None:
            pytest.skip(f"{self.framework.name} has no identity of {wire}")
        path = folder / self.framework.file
        signature = self.framework.identity(path, [Pair("A", "X", wire), Pair("B", "Y", wire)])
        a, b = (values(wire, (rows, *shape_of(t)), i) for i, t in enumerate(signature.inputs))
        model = spec(f"{self.framework.config}\n{signature.text()}")
        return Case(context(path), model, {"A": a, "B": b}, {"X": a, "Y": b})


class Counted:
    """What came of requests that were sent all the time."""

    def __init__(self) -> None:
        self.responses = 0
        self.failures: list[BaseException] = []


def assert_close(found: Arrays, expected: Arrays, tolerance: float) -> None:
    """Expect arrays that differ by at most ``tolerance`` of their values, and of the largest of them; 0 for none."""
    for name, other in expected.items():
        own = found[name]
        assert own.shape == other.shape and own.dtype == other.dtype
        if tolerance:
            np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance * np.abs(other).max())
        else:
            assert own.tobytes() == other.tobytes(), (own, other)


@contextmanager
def asked_all_the_time(served: FrameworkServer, model: str, signature: Signature) -> Iterator[Counted]:
    """One request after another to a model."""
    counted, over = Counted(), Event()
    given = random_inputs(signature, 1, 0)
    expected = served.infer(model, given)

    def ask() -> None:
        try:
            while not over.is_set():
                assert_close(served.infer(model, given), expected, served.framework.tolerance)
                counted.responses += 1
        except BaseException as error:
            counted.failures.append(error)

    thread = Thread(target=ask)
    thread.start()
    try:
        yield counted
    finally:
        over.set()
        thread.join(CALL_S)
    assert not thread.is_alive()


def shared_memory(process: psutil.Process) -> int:
    """How many pieces of memory a process shares with the server."""
    return Path(f"/proc/{process.pid}/maps").read_text().count("memfd:naiad")


def writes(framework: Framework, seed: int = 0, hidden: int = HIDDEN) -> Write:
    """The function that writes such a network."""
    return lambda path: framework.network(path, seed, hidden)


def network(served: FrameworkServer) -> Signature:
    """The network of most tests, which is loaded once."""
    return served.cached("network", writes(served.framework), BATCHING)


def identities(served: FrameworkServer, group: tuple[str, ...]) -> Signature:
    """The identity of a group of datatypes, which is loaded once."""
    assert served.framework.identity
    pairs = [Pair(f"IN_{wire}", f"OUT_{wire}", wire) for wire in group]
    return served.cached(model_of(group), partial(_written, served.framework.identity, pairs))


def _written(identity: Callable[[Path, Any], Signature], pairs: list[Pair], path: Path) -> Signature:
    return identity(path, pairs)


def model_of(group: tuple[str, ...]) -> str:
    """The name of the identity of a group of datatypes."""
    return "identity_" + "_".join(group).lower()


def _pace(framework: Framework, mode: str, loads_more: bool) -> list[pytest.MarkDecorator]:
    slow = mode in framework.slow_modes or (loads_more and mode == "process")
    # An import of five seconds takes a minute on a busy machine, and some tests wait for several.
    patient = mode != "thread" and framework.process_reloads is None
    return [*([pytest.mark.slow] if slow else []), *([pytest.mark.timeout(600)] if patient else [])]


def _group_name(group: tuple[str, ...]) -> str:
    return group[0] if len(group) == 1 else f"{group[0]}-and-{len(group) - 1}" if group else "none"


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The dims of a tensor, 3 for each that varies."""
    return tuple(3 if dim == -1 else dim for dim in tensor.dims)


def random_inputs(signature: Signature, rows: int, seed: int) -> Arrays:
    """Inputs of a network."""
    random = np.random.default_rng(seed)
    return {t.name: random.standard_normal((rows, *t.dims)).astype(np.float32) for t in signature.inputs}


def filled(tensor: Tensor, rows: int, value: int) -> np.ndarray[Any, Any]:
    """A tensor of one value."""
    return np.full((rows, *shape_of(tensor)), value, BY_WIRE[tensor.wire].numpy)


def limits(wire: str, rows: int) -> np.ndarray[Any, Any]:
    """The values of a datatype that go wrong first: [rows, n], or [rows, 1] for BYTES."""
    dtype = BY_WIRE[wire].numpy
    if wire == "BYTES":
        return values(wire, (rows, 1))
    if wire == "BOOL":
        row = np.array([True, False, True])
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        row = np.array([info.min, info.max, 0, 1], dtype)
    else:
        precise = ml_dtypes.finfo(dtype)
        row = np.array([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, precise.max, precise.tiny], dtype)
    return np.tile(row, (rows, 1))


def with_rows(tensors: tuple[Tensor, ...]) -> list[tuple[str, str, list[int]]]:
    """Tensors as the metadata of a batching model has them."""
    return [(t.name, t.wire, [-1, *t.dims]) for t in tensors]


def described(entries: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    """Names, datatypes and dims of a configuration's inputs or outputs."""
    enum = entries[0].DESCRIPTOR.fields_by_name["data_type"].enum_type
    return [(t.name, BY_CONFIG[enum.values_by_number[t.data_type].name].wire, tuple(t.dims)) for t in entries]


def assert_says(text: str, words: str) -> None:
    """An error text says what it should."""

    assert re.search(words, text), f"{text!r} does not match {words!r}"
