"""Queue policies of a loaded model: deadlines while it is busy, sizes, priorities, and what is counted."""

from __future__ import annotations

import asyncio
import threading
from time import monotonic_ns

import pytest

from naiad.backend_api.backend import Arrays
from naiad.config.spec import BatchingSpec, QueuePolicySpec, QueueSpec
from naiad.errors import QueueFullError, RequestTimeoutError
from naiad.request import RequestOptions
from support.event_loops import LOOPS, WAIT_S, run, turns, until
from support.loaded_models import Caller, loaded, negate, spec

MS = 1_000_000

loops = pytest.mark.parametrize("loop", sorted(LOOPS))
batched = pytest.mark.parametrize("batching", [None, BatchingSpec((1,))], ids=["single", "dynamic"])


class Busy:
    """Runs its first batch until it is told to end; notes the batches that came."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.free = threading.Event()
        self.batches: list[list[float]] = []

    def __call__(self, inputs: Arrays, outputs: object) -> Arrays:
        self.batches.append(inputs["x"].ravel().tolist())
        self.entered.set()
        assert self.free.wait(WAIT_S)
        return negate(inputs, ("y",))


def caller(value: float, priority: int = 0, timeout_us: int = 0) -> Caller:
    return Caller(value, options=RequestOptions(("y",), 1, (("x", (1,)),), priority=priority, timeout_us=timeout_us))


@loops
@batched
def test_a_request_is_refused_at_its_deadline_while_the_model_is_busy(loop: str, batching: BatchingSpec | None) -> None:
    busy = Busy()

    async def test() -> None:
        queue = QueueSpec(policy=QueuePolicySpec(timeout_ns=30 * MS))
        with loaded(spec(batching=batching, queue=queue), busy) as model:
            running, waiting = caller(1), caller(2)
            model.submit(running)
            await until(busy.entered.is_set)
            model.submit(waiting)
            with pytest.raises(RequestTimeoutError, match=r"^Request timeout expired$"):
                await waiting.answer()
            assert monotonic_ns() - waiting.queued_ns >= 30 * MS
            assert model.statistics.failures["REJECTED"] == 1
            assert (model.in_flight, model.statistics.pending) == (1, 0)
            busy.free.set()
            assert await running.answer() == [-1.0]

    run(test(), loop)
    assert busy.batches == [[1.0]]


def test_a_request_may_have_a_shorter_time_of_its_own() -> None:
    busy = Busy()

    async def test() -> None:
        queue = QueueSpec(policy=QueuePolicySpec(allows_override=True))
        with loaded(spec(queue=queue), busy) as model:
            running, patient, hurried = caller(1), caller(2), caller(3, timeout_us=20_000)
            model.submit(running)
            await until(busy.entered.is_set)
            model.submit(patient)
            model.submit(hurried)
            with pytest.raises(RequestTimeoutError):
                await hurried.answer()
            busy.free.set()
            assert await patient.answer() == [-2.0]

    run(test())


def test_with_the_action_delay_a_late_request_is_answered_after_the_others() -> None:
    busy = Busy()

    async def test() -> None:
        queue = QueueSpec(policy=QueuePolicySpec(timeout_ns=20 * MS, delays=True, allows_override=True))
        with loaded(spec(queue=queue), busy) as model:
            order: list[Caller] = []
            running, late = caller(1), caller(2, timeout_us=1)
            model.submit(running)
            await until(busy.entered.is_set)
            model.submit(late)
            await asyncio.sleep(0.005)
            in_time = caller(3)
            for one in (late, in_time):
                one.order = order
            model.submit(in_time)
            busy.free.set()
            assert await late.answer() == [-2.0]
            assert order == [in_time, late]

    run(test())


@loops
@pytest.mark.parametrize("delays", [False, True], ids=["refused", "served later"])
def test_what_is_left_at_a_deadline_may_be_a_batch(loop: str, delays: bool) -> None:
    async def test() -> None:
        queue = QueueSpec(policy=QueuePolicySpec(allows_override=True, delays=delays))
        batching = BatchingSpec((2, 8), max_queue_delay_ns=int(WAIT_S * 10**9))
        with loaded(spec(batching=batching, queue=queue), negate) as model:
            late = caller(1, timeout_us=20_000)
            late.options.rows = 3
            left = [caller(2), caller(3)]
            for one in (late, *left):
                model.submit(one)
            await turns()
            assert model.statistics.pending == 3
            assert [await one.answer() for one in left] == [[-2.0], [-3.0]]
            assert model.statistics.pending == delays
            if not delays:
                with pytest.raises(RequestTimeoutError):
                    await late.answer()

    run(test(), loop)


@batched
def test_a_full_queue_refuses_and_counts_it(batching: BatchingSpec | None) -> None:
    busy = Busy()

    async def test() -> None:
        queue = QueueSpec(policy=QueuePolicySpec(max_size=2))
        with loaded(spec(batching=batching, queue=queue), busy) as model:
            callers = [caller(i) for i in range(3)]
            model.submit(callers[0])
            await until(busy.entered.is_set)
            for one in callers[1:]:
                model.submit(one)
            with pytest.raises(QueueFullError, match=r"^Exceeds maximum queue size$"):
                model.submit(caller(9))
            assert model.statistics.failures["REJECTED"] == 1
            assert (model.in_flight, model.statistics.pending) == (3, 2)
            busy.free.set()
            for one in callers:
                await one.answer()
            assert (model.in_flight, model.statistics.pending) == (0, 0)

    run(test())


def test_priorities_are_kept_while_the_model_is_busy() -> None:
    busy = Busy()

    async def test() -> None:
        with loaded(spec(queue=QueueSpec(3, 2)), busy) as model:
            callers = [caller(i, priority) for i, priority in enumerate((1, 3, 0, 1, 2, 7))]
            model.submit(callers[0])
            await until(busy.entered.is_set)
            for one in callers[1:]:
                model.submit(one)
            busy.free.set()
            for one in callers:
                await one.answer()

    run(test())
    assert [batch[0] for batch in busy.batches] == [0, 3, 2, 4, 5, 1]


def test_a_long_queue_may_be_left_in_any_order() -> None:
    busy = Busy()

    async def test() -> None:
        with loaded(spec(batching=BatchingSpec((8,))), busy) as model:
            callers = [caller(i) for i in range(1000)]
            model.submit(callers[0])
            await until(busy.entered.is_set)
            for one in callers[1:]:
                model.submit(one)
            for one in callers[-2:0:-2]:
                model.cancel(one)
            busy.free.set()
            for one in callers[1::2]:
                assert await one.answer() == [-one.inputs["x"].item()]
            assert model.statistics.failures["CANCELED"] == 499
            assert (model.in_flight, model.statistics.pending) == (0, 0)

    run(test())
    assert [value for batch in busy.batches for value in batch] == [0, *range(1, 1000, 2)]


@pytest.mark.parametrize(("burst", "refused"), [(10, 0), (12, 2)])
def test_a_burst_may_be_as_long_as_the_queue_and_a_batch(burst: int, refused: int) -> None:
    """Requests of one turn of the loop wait for its end, also beside an idle instance."""
    busy = Busy()

    async def test() -> None:
        queue = QueueSpec(policy=QueuePolicySpec(max_size=6))
        with loaded(spec(max_batch_size=4, batching=BatchingSpec((4,)), queue=queue), busy) as model:
            accepted, problems = [], []
            for value in range(burst):
                one = caller(value)
                try:
                    model.submit(one)
                    accepted.append(one)
                except QueueFullError as error:
                    problems.append(str(error))
            assert problems == ["Exceeds maximum queue size"] * refused
            assert model.statistics.failures["REJECTED"] == refused
            assert (model.in_flight, model.statistics.pending) == (10, 6)
            busy.free.set()
            for one in accepted:
                await one.answer()

    run(test())
    assert busy.batches[0] == [0.0, 1.0, 2.0, 3.0]
