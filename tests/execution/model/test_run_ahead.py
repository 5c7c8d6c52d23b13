"""The next request waits in the only instance, which begins with it as soon as it can."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from naiad.backend_api.backend import Arrays
from naiad.config.spec import BatchingSpec, ModelSpec
from naiad.errors import CancelledError
from naiad.execution.batching.batch import Batch
from naiad.execution.instances.warmup import Warmup
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.model.run_ahead import RunAhead
from naiad.testing import wait_until
from support.event_loops import WAIT_S, run, until
from support.loaded_models import Caller, loaded, negate, spec


class Steps:
    """Negates when it may take a step; notes the requests in their order."""

    def __init__(self) -> None:
        self.steps = threading.Semaphore(0)
        self.begun: list[float] = []

    def __call__(self, inputs: Arrays, outputs: object) -> Arrays:
        self.begun += inputs["x"].ravel().tolist()
        assert self.steps.acquire(timeout=WAIT_S)
        return negate(inputs, ("y",))


def wait_in_thread(condition: threading.Semaphore) -> None:
    """Block the loop until the instance has passed a step."""
    assert condition.acquire(timeout=WAIT_S)


def submit(model: LoadedModel, *values: float) -> list[Caller]:
    callers = [Caller(value) for value in values]
    for caller in callers:
        model.submit(caller)
    return callers


def test_the_next_request_begins_without_the_loop() -> None:
    begun = threading.Semaphore(0)

    def note(inputs: Arrays, outputs: object) -> Arrays:
        begun.release()
        return negate(inputs, ("y",))

    async def test() -> None:
        with loaded(spec(), note) as model:
            callers = submit(model, 1, 2)
            # The loop does nothing meanwhile.
            wait_in_thread(begun)
            wait_in_thread(begun)
            assert not any(caller.answers for caller in callers)
            assert [await caller.answer() for caller in callers] == [[-1.0], [-2.0]]

    run(test())


def test_requests_that_may_run_together_stay_in_the_queue() -> None:
    batches: list[list[float]] = []
    steps = Steps()

    def execute(inputs: Arrays, outputs: object) -> Arrays:
        batches.append(inputs["x"].ravel().tolist())
        return steps(inputs, outputs)

    async def test() -> None:
        with loaded(spec(batching=BatchingSpec((8,), 0, False)), execute) as model:
            callers = submit(model, 1)
            await until(lambda: bool(batches))
            for value in (2, 3):
                callers += submit(model, value)
                await asyncio.sleep(0)
            steps.steps.release(2)
            assert [await caller.answer() for caller in callers] == [[-1.0], [-2.0], [-3.0]]

    run(test())
    assert batches == [[1.0], [2.0, 3.0]]


@pytest.mark.parametrize("first", [1.0, 2.0])
def test_of_two_instances_the_first_that_is_done_takes_the_next_request(first: float) -> None:
    done = {value: threading.Event() for value in (1.0, 2.0, 3.0)}
    begun: list[float] = []

    def execute(inputs: Arrays, outputs: object) -> Arrays:
        value = float(inputs["x"].item())
        begun.append(value)
        assert done[value].wait(WAIT_S)
        return negate(inputs, ("y",))

    async def test() -> None:
        with loaded(spec(count=2), execute) as model:
            callers = submit(model, 1, 2, 3)
            await until(lambda: len(begun) == 2)
            done[first].set()
            await until(lambda: len(begun) == 3)
            for event in done.values():
                event.set()
            for caller in callers:
                await caller.answer()

    run(test())


def test_a_request_that_waits_in_an_instance_is_pending() -> None:
    steps = Steps()

    async def test() -> None:
        with loaded(spec(), steps) as model:
            assert model.instance_states == {"idle": 1, "busy": 0, "down": 0}
            first, second, third = submit(model, 1, 2, 3)
            await until(lambda: steps.begun == [1.0])
            assert model.statistics.pending == 2
            assert model.instance_states == {"idle": 0, "busy": 1, "down": 0}
            steps.steps.release()
            assert await first.answer() == [-1.0]
            assert model.statistics.pending == 1
            steps.steps.release(2)
            assert await second.answer() == [-2.0]
            assert await third.answer() == [-3.0]
            assert (model.in_flight, model.statistics.pending) == (0, 0)
            assert model.instance_states == {"idle": 1, "busy": 0, "down": 0}

    run(test())


def test_a_request_that_waits_in_an_instance_is_cancelled_at_once() -> None:
    steps = Steps()

    async def test() -> None:
        with loaded(spec(), steps) as model:
            first, second, third = submit(model, 1, 2, 3)
            await until(lambda: steps.begun == [1.0])
            model.cancel(second)
            with pytest.raises(CancelledError):
                await second.answer()
            assert model.statistics.pending == 1
            steps.steps.release(2)
            assert await third.answer() == [-3.0]
            assert await first.answer() == [-1.0]
            assert model.instance_states == {"idle": 1, "busy": 0, "down": 0}
            # The instance works as before.
            steps.steps.release(2)
            assert [await caller.answer() for caller in submit(model, 4, 5)] == [[-4.0], [-5.0]]

    run(test())
    assert steps.begun == [1.0, 3.0, 4.0, 5.0]


def test_a_request_that_has_begun_gets_its_response() -> None:
    steps = Steps()

    async def test() -> None:
        with loaded(spec(), steps) as model:
            first, second = submit(model, 1, 2)
            wait_until(lambda: steps.begun == [1.0], WAIT_S, "the first one has begun")
            steps.steps.release()
            # The loop has not heard that the first one is done.
            wait_until(lambda: steps.begun == [1.0, 2.0], WAIT_S, "the second one has begun")
            model.cancel(second)
            assert not second.answers
            steps.steps.release()
            assert await first.answer() == [-1.0]
            assert await second.answer() == [-2.0]

    run(test())


def test_instances_that_come_and_go_while_a_request_waits_in_one() -> None:
    steps = Steps()
    one, two = spec(), spec(count=2)

    async def change(model: LoadedModel, wanted: ModelSpec) -> None:
        warmup = Warmup(())
        found = model.regroup(wanted, None, warmup)
        await asyncio.get_running_loop().run_in_executor(None, model.start_more, found, warmup)
        model.serve_by(wanted, found)

    async def test() -> None:
        with loaded(one, steps) as model:
            callers = submit(model, 1, 2, 3)
            await until(lambda: steps.begun == [1.0])
            await change(model, two)
            # The third one runs beside the first; the second stays where it waits, and can be cancelled there.
            await until(lambda: steps.begun == [1.0, 3.0])
            assert model.statistics.pending == 1
            model.cancel(callers[1])
            with pytest.raises(CancelledError):
                await callers[1].answer()
            steps.steps.release(2)
            assert [await callers[place].answer() for place in (0, 2)] == [[-1.0], [-3.0]]
            assert model.instance_states == {"idle": 2, "busy": 0, "down": 0}
            assert model.statistics.pending == 0
            more = submit(model, 4, 5)
            await until(lambda: sorted(steps.begun[2:]) == [4.0, 5.0])
            assert model.instance_states == {"idle": 0, "busy": 2, "down": 0}
            last = submit(model, 6)
            await change(model, one)
            steps.steps.release(3)
            for caller in (*more, *last):
                await caller.answer()
            assert model.instance_states == {"idle": 1, "busy": 0, "down": 0}
            again = submit(model, 7, 8)
            steps.steps.release(2)
            assert [await caller.answer() for caller in again] == [[-7.0], [-8.0]]

    run(test())


class OnlyInstance:
    """Takes batches ahead and gives them up again, as a worker does."""

    runs_ahead = True

    def __init__(self) -> None:
        self.taken: list[Batch] = []

    def run_ahead(self, batch: Batch) -> None:
        self.taken.append(batch)

    def drop(self, batch: Batch) -> bool:
        return batch in self.taken


def test_a_place_stays_taken_by_what_was_given_up() -> None:
    """Else callers that come and leave while a model runs for long would fill the memory of its process."""
    instance: Any = OnlyInstance()
    idle: list[Any] = [instance]
    ahead = RunAhead(idle, True)
    ahead.choose([instance], set())
    assert idle == [instance, instance]
    idle.clear()
    caller = Caller(1.0)
    ahead.run(instance, Batch([caller]))
    assert ahead.drop(caller)
    assert not ahead.drop(caller)
    assert (ahead.holder, idle) == (instance, [])
    # Nothing begins when the running batch is done.
    assert not ahead.next_begins()
    assert ahead.holder is None
    ahead.run(instance, Batch([caller]))
    assert ahead.next_begins()
