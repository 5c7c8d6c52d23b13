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
from naiad.execution.model.run_ahead import LARGE_BYTES, RunAhead
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
            # What a long turn leaves to the next one.
            await asyncio.sleep(0)
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
            # What a long turn leaves to the next one.
            await asyncio.sleep(0)
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

    def __init__(self, runs_ahead: int) -> None:
        self.runs_ahead = runs_ahead
        self.taken: list[Batch] = []

    def run_ahead(self, batch: Batch) -> None:
        self.taken.append(batch)

    def drop(self, batch: Batch) -> bool:
        return batch in self.taken


class Places:
    """An instance that is alone and runs a batch, with ``places`` for further ones."""

    def __init__(self, places: int) -> None:
        self.instance: Any = OnlyInstance(places)
        self.idle: list[Any] = [self.instance]
        self.ahead = RunAhead(self.idle, True)
        self.ahead.choose([self.instance], set())
        assert self.idle == [self.instance] * (1 + places)
        self.idle.pop()

    def take(self, size: int = 1) -> Caller:
        """A request that waits behind the running batch."""
        caller = Caller([0.0] * size)
        self.idle.pop()
        assert not self.ahead.run(self.instance, Batch([caller]))
        return caller


def test_a_place_stays_taken_by_what_was_given_up() -> None:
    """Else callers that come and leave while a model runs for long would fill the memory of its process."""
    places = Places(1)
    caller = places.take()
    assert places.ahead.drop(caller)
    assert not places.ahead.drop(caller)
    assert places.idle == []
    # Nothing begins when the running batch is done.
    assert places.ahead.next_begins(places.instance) == (False, 1)
    assert not places.ahead.waiting


def test_what_waits_begins_in_its_order() -> None:
    places = Places(3)
    first, second, third = (places.take() for _ in range(3))
    assert places.idle == []
    assert places.ahead.drop(second)
    assert places.ahead.next_begins(places.instance) == (True, 0)
    # The first one has begun, so its batch is nobody's to give up.
    assert not places.ahead.drop(first)
    assert places.ahead.next_begins(places.instance) == (True, 1)
    assert not places.ahead.drop(third)
    assert not places.ahead.waiting


def test_a_large_batch_takes_all_places_until_it_begins() -> None:
    places = Places(3)
    places.take()
    places.take(LARGE_BYTES)
    assert places.idle == []
    assert places.ahead.next_begins(places.instance) == (True, 0)
    assert places.ahead.next_begins(places.instance) == (True, 1)


def test_a_large_batch_that_was_given_up_gives_all_its_places_back() -> None:
    places = Places(3)
    assert places.ahead.drop(places.take(LARGE_BYTES))
    assert places.ahead.next_begins(places.instance) == (False, 3)


@pytest.mark.parametrize("waiting", [0, 1, 3])
def test_places_are_lost_beside_another_instance_and_come_back(waiting: int) -> None:
    places = Places(3)
    for _ in range(waiting):
        places.take()
    other: Any = OnlyInstance(3)
    places.ahead.choose([places.instance, other], set())
    # It is idle again once what it holds is done: the running batch, and those that wait.
    assert places.idle == []
    assert places.ahead.owing.get(places.instance, 0) == waiting
    places.ahead.choose([places.instance], set())
    assert places.idle == [places.instance] * (3 - waiting)
    assert not places.ahead.owing


def test_what_an_instance_holds_ends_before_it_is_idle_beside_another() -> None:
    places = Places(3)
    places.take()
    places.take()
    other: Any = OnlyInstance(3)
    places.ahead.choose([places.instance, other], set())
    assert [places.ahead.withhold(places.instance) for _ in range(3)] == [True, True, False]
    assert not places.ahead.owing


def test_what_waits_in_an_instance_that_is_lost_comes_back_in_its_order() -> None:
    places = Places(3)
    first, second, third = (places.take() for _ in range(3))
    places.ahead.drop(second)
    assert [batch.requests for batch in places.ahead.lose(places.instance)] == [[first], [third]]
    assert (places.ahead.instance, places.ahead.waiting) == (None, {})


def test_an_instance_that_is_replaced_keeps_what_waits_in_it() -> None:
    places = Places(3)
    first, second = places.take(), places.take(LARGE_BYTES)
    other: Any = OnlyInstance(3)
    places.idle.append(other)
    # The first instance is passive from now on, and only finishes what it has.
    places.ahead.choose([places.instance, other], {places.instance})
    assert places.idle == [other] * 4
    third = Caller(3.0)
    places.idle.pop()
    places.idle.pop()
    assert not places.ahead.run(other, Batch([third]))
    assert places.ahead.drop(first)
    assert places.ahead.next_begins(other) == (True, 0)
    assert places.ahead.next_begins(places.instance) == (True, 2)
    assert not places.ahead.drop(second)
    assert not places.ahead.waiting
