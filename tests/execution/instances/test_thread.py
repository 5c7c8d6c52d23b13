"""An instance in its thread: creation, batches, failures of every kind, and the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

import numpy as np
import pytest

from naiad.backend_api.backend import Arrays, Instance
from naiad.errors import BackendError, BackendUnavailableError, ModelLoadError, NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.instances.thread import ThreadInstance
from naiad.request import InferRequest, RequestOptions
from support.event_loops import WAIT_S
from support.loaded_models import Execute, FunctionInstance, negate, spec


class Bench:
    """A started instance thread and what it hands back."""

    def __init__(self, execute: Execute) -> None:
        self.instance = FunctionInstance(execute)
        self.done: SimpleQueue[list[Batch]] = SimpleQueue()
        self.thread = ThreadInstance("m_0", spec(), lambda: self.instance, lambda _, batches: self.done.put(batches))
        self.thread.start()

    def run(self, *values: float) -> list[Batch]:
        """Run one batch with a request of one row for each value; the batches that came back."""
        self.thread.run(batch(*values))
        return self.done.get(timeout=WAIT_S)

    def stop(self) -> None:
        self.thread.stop()
        assert self.thread.join(WAIT_S)


def batch(*values: float) -> Batch:
    options = RequestOptions(("y",), 1)
    return Batch([InferRequest(options, {"x": np.array([[v]], np.float32)}) for v in values])


def raising(error: BaseException, poison: float | None = None) -> Execute:
    """Fails when a row is ``poison``, else negates; always fails without one."""

    def execute(inputs: Arrays, outputs: object) -> Arrays:
        if poison is None or poison in inputs["x"]:
            raise error
        return negate(inputs, ("y",))

    return execute


def results(found: Batch) -> list[float]:
    assert found.error is None
    return found.results["y"].ravel().tolist()


# The start


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_failed_start_is_an_error_of_the_load(error: BaseException) -> None:
    """SystemExit among them: it would end the server if it reached the loop."""

    def create() -> Instance:
        raise error

    thread = ThreadInstance("m_0", spec(), create, lambda *_: None)
    with pytest.raises(ModelLoadError, match=f"instance 'm_0' failed to start: {type(error).__name__}"):
        thread.start()
    assert not [t for t in threading.enumerate() if t.name == "naiad-m_0"]


def test_an_error_of_ours_is_passed_on_as_it_is() -> None:
    def create() -> Instance:
        raise BackendUnavailableError("not here")

    with pytest.raises(BackendUnavailableError, match=r"^not here$"):
        ThreadInstance("m_0", spec(), create, lambda *_: None).start()


def test_the_instance_lives_in_a_thread_of_its_own() -> None:
    seen: list[threading.Thread] = []

    def execute(inputs: Arrays, outputs: object) -> Arrays:
        seen.append(threading.current_thread())
        return negate(inputs, ("y",))

    bench = Bench(execute)
    bench.run(1)
    bench.run(2)
    bench.stop()
    assert [t.name for t in seen] == ["naiad-m_0"] * 2
    assert bench.instance.closed_in == seen[:1]


# Batches


def test_results_and_times() -> None:
    bench = Bench(negate)
    (found,) = bench.run(1, 2, 3)
    bench.stop()
    assert results(found) == [-1.0, -2.0, -3.0]
    assert 0 < found.start_ns <= found.input_ns <= found.infer_ns <= found.end_ns


def test_inputs_that_were_gathered_before_are_used() -> None:
    bench = Bench(negate)
    prepared = batch(1)
    prepared.inputs = {"x": np.array([[5.0]], np.float32)}
    bench.thread.run(prepared)
    (found,) = bench.done.get(timeout=WAIT_S)
    bench.stop()
    assert results(found) == [-5.0]
    assert found.start_ns == found.input_ns


def test_batches_run_in_the_order_given() -> None:
    bench = Bench(negate)
    for v in range(50):
        bench.thread.run(batch(v))
    found = [results(bench.done.get(timeout=WAIT_S)[0]) for _ in range(50)]
    bench.stop()
    assert found == [[-float(v)] for v in range(50)]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("boom"), "model 'm' failed: RuntimeError: boom"),
        (SystemExit(1), "model 'm' failed: SystemExit: 1"),
        (KeyboardInterrupt(), "model 'm' failed: KeyboardInterrupt: "),
        (MemoryError(), "model 'm' failed: MemoryError: "),
        (BackendError("the framework's own words"), "the framework's own words"),
    ],
)
def test_whatever_a_model_raises_ends_its_batch_only(error: BaseException, text: str) -> None:
    bench = Bench(raising(error, poison=7))
    (failed,) = bench.run(7)
    assert isinstance(failed.error, NaiadError)
    assert str(failed.error) == text
    assert failed.end_ns >= failed.start_ns > 0
    (fine,) = bench.run(1)
    assert results(fine) == [-1.0]
    bench.stop()


@pytest.mark.parametrize(
    "returned", [None, {}, {"y": None}, {"y": [1.0]}, {"y": np.zeros((9, 1), np.float32)}, {"y": np.zeros((1, 1))}]
)
def test_a_wrong_result_is_an_error(returned: object) -> None:
    bench = Bench(lambda inputs, outputs: returned)
    (failed,) = bench.run(1)
    bench.stop()
    assert isinstance(failed.error, BackendError)
    assert "model 'm'" in str(failed.error)


@pytest.mark.parametrize("bad", [[0], [4], [1, 3], [0, 1, 2, 3, 4]])
def test_a_poisoned_batch_is_split(bad: list[int]) -> None:
    bench = Bench(raising(RuntimeError("boom"), poison=7))
    values = [7.0 if i in bad else float(i) for i in range(5)]
    whole, *parts = bench.run(*values)
    bench.stop()
    assert whole.error is not None
    assert whole.requests == []
    assert whole.rows == 5
    assert len(parts) <= 2 * 5 - 2, "n requests mean 2n - 1 runs at most"
    answers: list[float | None] = []
    for part in parts:
        if part.error is None:
            answers += results(part)
        else:
            assert isinstance(part.error, BackendError)
            assert len(part.requests) < 2
            answers += [None] * len(part.requests)
    assert answers == [None if i in bad else -values[i] for i in range(5)]


def test_a_batch_whose_result_is_wrong_is_split_too() -> None:
    def execute(inputs: Arrays, outputs: object) -> Arrays:
        return {"y": -inputs["x"][:1]}

    bench = Bench(execute)
    _, *singles = bench.run(1, 2)
    bench.stop()
    assert [results(s) for s in singles] == [[-1.0], [-2.0]]


# The end


def test_stopping_lets_what_was_given_finish() -> None:
    go = threading.Event()

    def execute(inputs: Arrays, outputs: object) -> Arrays:
        assert go.wait(WAIT_S)
        return negate(inputs, ("y",))

    bench = Bench(execute)
    bench.thread.run(batch(1))
    bench.thread.run(batch(2))
    bench.thread.stop()
    assert not bench.thread.join(0.01)
    assert bench.instance.closed_in == []
    go.set()
    assert bench.thread.join(WAIT_S)
    assert [results(bench.done.get(timeout=WAIT_S)[0]) for _ in range(2)] == [[-1.0], [-2.0]]
    assert len(bench.instance.closed_in) == 1


def test_stopping_twice_closes_once() -> None:
    bench = Bench(negate)
    bench.stop()
    bench.stop()
    assert len(bench.instance.closed_in) == 1


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(1)])
def test_a_failing_close_is_logged(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(negate)
    bench.instance.close = fail_with(error)  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR):
        bench.stop()
    assert "instance 'm_0' failed to close" in caplog.text


def fail_with(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail
