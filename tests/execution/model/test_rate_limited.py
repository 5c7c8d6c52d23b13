"""Models whose instances share resources: who runs beside whom, who is woken, and what is free again when one ends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from naiad.backend_api.backend import Arrays, Backend
from naiad.config.rate_limiter import RateLimiterSpec, ResourceSpec
from naiad.config.spec import BatchingSpec, InstanceGroupSpec, ModelSpec, QueuePolicySpec, QueueSpec
from naiad.errors import BackendError, CancelledError, ModelLoadError, RequestTimeoutError
from naiad.execution.instances.warmup import NO_WARMUP
from naiad.execution.model.instance_set import end
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.model.rate_limits import RateLimits
from naiad.scheduling.rate_limiter import ResourceLimit
from support.loaded_models import WAIT_S, Caller, FunctionBackend, identity, run, spec, until

R = ResourceSpec("R", 1)


def groups(*resources: ResourceSpec, count: int = 1, priority: int = 1) -> tuple[InstanceGroupSpec, ...]:
    return (InstanceGroupSpec("m", "KIND_CPU", count, rate_limiter=RateLimiterSpec(resources, priority)),)


def needing(*resources: ResourceSpec, count: int = 1, priority: int = 1, **more: object) -> ModelSpec:
    return replace(spec(**more), instance_groups=groups(*resources, count=count, priority=priority))  # type: ignore[arg-type]


class Meter:
    """Counts who runs at the same time; each execution waits for a ticket."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.done: list[str] = []
        self.tickets = threading.Semaphore(0)
        self._lock = threading.Lock()

    def backend(self, name: str) -> Backend:
        def execute(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
            with self._lock:
                self.running += 1
                self.most = max(self.most, self.running)
            assert self.tickets.acquire(timeout=WAIT_S)
            with self._lock:
                self.running -= 1
                self.done.append(name)
            if inputs["x"].flat[0] < 0:
                raise ValueError("negative")
            return {"y": inputs["x"] + 1}

        return FunctionBackend(lambda index: execute)


@contextlib.contextmanager
def limited(limits: RateLimits, *models: tuple[ModelSpec, Backend]) -> Iterator[list[LoadedModel]]:
    loop = asyncio.get_running_loop()
    made = [LoadedModel(model, 1, backend, loop, limits=limits) for model, backend in models]
    try:
        for model in made:
            model.start()
        yield made
    finally:
        for model in made:
            assert model.close(WAIT_S)
            model.detach()
        assert limits.limiter.used == {}
        assert limits.limiter.available == {}


def submit(model: LoadedModel, count: int, value: float = 1) -> list[Caller]:
    callers = [Caller(value) for _ in range(count)]
    for caller in callers:
        model.submit(caller)
    return callers


async def answers(*callers: Caller) -> None:
    for caller in callers:
        assert await caller.answer() == [2]


def test_two_models_that_need_the_same_run_in_turns() -> None:
    async def test() -> None:
        meter = Meter()
        one = (needing(R), meter.backend("one"))
        other = (needing(R), meter.backend("other"))
        with limited(RateLimits(), one, other) as (first, second):
            callers = [*submit(first, 20), *submit(second, 20)]
            meter.tickets.release(40)
            await answers(*callers)
            assert meter.most == 1
            # Whoever ran less often comes first, so they change about from the second turn on.
            assert meter.done == ["one", "other"] * 20

    run(test())


def test_as_many_run_together_as_there_is_room_for() -> None:
    async def test() -> None:
        meter = Meter()
        limits = RateLimits([ResourceLimit("r", 5)])
        many = (needing(ResourceSpec("R", 2), count=4), meter.backend("many"))
        free = (needing(), meter.backend("free"))
        with limited(limits, many, free) as (first, second):
            callers = submit(first, 4)
            await until(lambda: meter.running == 2)
            # What needs nothing of it does not wait.
            callers += submit(second, 1)
            await until(lambda: meter.running == 3)
            assert limits.limiter.used == {("R", 0): 4}
            meter.tickets.release(5)
            await answers(*callers)
            assert meter.most == 3

    run(test())


def test_an_instance_without_work_keeps_nothing_from_others() -> None:
    """Two instances ask for the one request, and the one that did not get it, or lost it, no longer waits."""

    async def test() -> None:
        meter = Meter()
        limits = RateLimits([ResourceLimit("r", 6)])
        large = (needing(ResourceSpec("R", 4), count=2), meter.backend("large"))
        small = (needing(ResourceSpec("R", 2), count=2), meter.backend("small"))
        with limited(limits, large, small) as (first, second):
            callers = submit(first, 1)
            await until(lambda: meter.running == 1)
            callers += submit(second, 1)
            await until(lambda: meter.running == 2)
            meter.tickets.release(2)
            await answers(*callers)
            # The same when the request that an instance waits for is given up.
            callers = submit(first, 1)
            await until(lambda: meter.running == 1)
            (given_up,) = submit(first, 1)
            callers += submit(second, 1)
            first.cancel(given_up)
            await until(lambda: meter.running == 2)
            meter.tickets.release(2)
            await answers(*callers)

    run(test())


def test_priorities_share_the_turns() -> None:
    async def test() -> None:
        meter = Meter()
        half = (needing(R, priority=2), meter.backend("half"))
        full = (needing(R), meter.backend("full"))
        with limited(RateLimits(), half, full) as (first, second):
            callers = [*submit(first, 60), *submit(second, 60)]
            meter.tickets.release(120)
            await answers(*callers)
            assert 19 <= meter.done[:60].count("half") <= 21

    run(test())


def test_a_batch_grows_while_its_instance_waits_for_its_turn() -> None:
    async def test() -> None:
        meter = Meter()
        batching = BatchingSpec((8,), 0)
        one, other = (needing(R), meter.backend("one")), (needing(R, batching=batching), meter.backend("batches"))
        with limited(RateLimits(), one, other) as (first, second):
            callers = submit(first, 1)
            await until(lambda: meter.running == 1)
            for _ in range(4):
                callers += submit(second, 2)
                await asyncio.sleep(0)
            meter.tickets.release(2)
            await answers(*callers)
            assert list(second.statistics.batches) == [8]

    run(test())


def test_a_queue_delay_holds_nobody_else_up() -> None:
    async def test() -> None:
        meter = Meter()
        batching = BatchingSpec((8,), 500_000_000)
        slow, other = (needing(R, batching=batching), meter.backend("slow")), (needing(R), meter.backend("other"))
        with limited(RateLimits(), slow, other) as (first, second):
            meter.tickets.release(3)
            waiting = submit(first, 1)
            await asyncio.sleep(0)
            await answers(*submit(second, 2))
            await answers(*waiting)
            assert meter.done == ["other", "other", "slow"]

    run(test())


def one_waits_for_two(meter: Meter) -> contextlib.AbstractContextManager[list[LoadedModel]]:
    """Models that need 3, 4 and 2 of 6; the second one runs two requests together, however long it takes."""
    return limited(
        RateLimits([ResourceLimit("r", 6)]),
        (needing(ResourceSpec("R", 3)), meter.backend("held")),
        (needing(ResourceSpec("R", 4), batching=BatchingSpec((2,), 3_600_000_000_000)), meter.backend("slow")),
        (needing(ResourceSpec("R", 2)), meter.backend("small")),
    )


def test_a_batch_that_is_not_due_yet_keeps_nothing_from_others() -> None:
    """An instance waits for its turn when it has something to run, not while its batch waits for more requests."""

    async def test() -> None:
        meter = Meter()
        with one_waits_for_two(meter) as (first, second, third):
            callers = submit(first, 1)
            await until(lambda: meter.running == 1)
            callers += submit(second, 1)
            await asyncio.sleep(0)
            # There is room for this one, and the one before it has no batch yet.
            callers += submit(third, 1)
            await until(lambda: meter.running == 2)
            meter.tickets.release(2)
            await until(lambda: meter.done == ["held", "small"] or meter.done == ["small", "held"])
            # The second request makes the batch whole; what comes after it waits for another one.
            callers += submit(second, 2)
            await until(lambda: meter.running == 1)
            meter.tickets.release(1)
            await until(lambda: len(meter.done) == 3)
            assert second.statistics.pending == 1
            callers += submit(second, 1)
            meter.tickets.release(1)
            await answers(*callers)
            assert second.statistics.batches.keys() == {2}

    run(test())


def test_a_batch_that_is_whole_no_more_waits_no_more_for_its_turn() -> None:
    async def test() -> None:
        meter = Meter()
        with one_waits_for_two(meter) as (first, second, third):
            callers = submit(first, 1)
            await until(lambda: meter.running == 1)
            stays, given_up = submit(second, 2)
            await asyncio.sleep(0)
            callers += [stays, *submit(third, 1)]
            second.cancel(given_up)
            await until(lambda: meter.running == 2)
            meter.tickets.release(2)
            callers += submit(second, 1)
            meter.tickets.release(1)
            await answers(*callers)
            with pytest.raises(CancelledError):
                await given_up.answer()

    run(test())


def test_instances_on_the_loop_take_their_turns_too() -> None:
    async def test() -> None:
        meter = Meter()
        quick, other = needing(R), (needing(R), meter.backend("other"))
        with limited(RateLimits(), (quick, identity(quick)), other) as (first, second):
            held = submit(second, 1)
            await until(lambda: meter.running == 1)
            callers = submit(first, 3)
            await asyncio.sleep(0)
            assert not any(caller.answers for caller in callers)
            meter.tickets.release()
            await answers(*held)
            await until(lambda: all(caller.answers for caller in callers))
            assert first.statistics.success.count == 3

    run(test())


def test_whoever_waits_for_its_turn_can_be_cancelled_and_is_bound_to_its_deadline() -> None:
    async def test() -> None:
        meter = Meter()
        queue = QueueSpec(policy=QueuePolicySpec(timeout_ns=20_000_000))
        one, other = (needing(R), meter.backend("one")), (needing(R, queue=queue), meter.backend("other"))
        with limited(RateLimits(), one, other) as (first, second):
            held = submit(first, 1)
            await until(lambda: meter.running == 1)
            given_up, late = submit(second, 2)
            second.cancel(given_up)
            with pytest.raises(CancelledError):
                await given_up.answer()
            with pytest.raises(RequestTimeoutError):
                await late.answer()
            meter.tickets.release(2)
            await answers(*held, *submit(second, 1))

    run(test())


def test_a_failed_execution_gives_back_what_it_held() -> None:
    async def test() -> None:
        meter = Meter()
        with limited(RateLimits(), (needing(R), meter.backend("one"))) as (model,):
            meter.tickets.release(2)
            (failed,) = submit(model, 1, value=-1)
            with pytest.raises(BackendError):
                await failed.answer()
            await answers(*submit(model, 1))

    run(test())


def test_a_model_that_ends_leaves_its_turn_to_the_others() -> None:
    async def test() -> None:
        meter = Meter()
        limits = RateLimits()
        small, large = (needing(R), meter.backend("small")), (needing(ResourceSpec("R", 3)), meter.backend("large"))
        with limited(limits, small) as (first,):
            with limited_beside(limits, *large) as second:
                assert limits.limiter.available == {("R", 0): 3}
                held = submit(first, 1)
                await until(lambda: meter.running == 1)
                waits = submit(second, 1)
                second.stop_accepting()
                meter.tickets.release(2)
                await answers(*held, *waits)
                drained = asyncio.Event()
                second.when_drained(drained.set)
                await drained.wait()
            assert limits.limiter.available == {("R", 0): 1}
            meter.tickets.release()
            await answers(*submit(first, 1))

    run(test())


@contextlib.contextmanager
def limited_beside(limits: RateLimits, model: ModelSpec, backend: Backend) -> Iterator[LoadedModel]:
    made = LoadedModel(model, 1, backend, asyncio.get_running_loop(), limits=limits)
    made.start()
    try:
        yield made
    finally:
        assert made.close(WAIT_S)
        made.detach()


def test_a_model_that_could_never_run_is_not_loaded() -> None:
    async def test() -> None:
        limits = RateLimits([ResourceLimit("R", 1)])
        meter = Meter()
        with limited(limits, (needing(R), meter.backend("one"))) as (model,):
            loop = asyncio.get_running_loop()
            refused = LoadedModel(needing(ResourceSpec("R", 2)), 1, meter.backend("other"), loop, limits=limits)
            # As a loading thread does it.
            with pytest.raises(ModelLoadError, match='Resource count for "R" is limited to 1 which will prevent'):
                await asyncio.to_thread(refused.start)
            meter.tickets.release()
            await answers(*submit(model, 1))

    run(test())


def test_instances_that_come_and_go_while_it_serves_bring_and_take_their_needs() -> None:
    async def test() -> None:
        limits, meter = RateLimits(), Meter()
        with limited(limits, (needing(R, count=2), meter.backend("m"))) as (model,):
            held = submit(model, 3)
            await until(lambda: meter.running == 1)
            wanted = replace(model.spec, instance_groups=groups(ResourceSpec("R", 4), count=1))
            change = model.regroup(wanted, None, NO_WARMUP)
            assert (len(change.coming), len(change.leaving)) == (1, 2)
            await asyncio.to_thread(model.start_more, change, NO_WARMUP)
            model.serve_by(wanted, change)
            meter.tickets.release(3)
            await answers(*held)
            await asyncio.to_thread(end, change.leaving)
            model.forget(change.leaving)
            assert (limits.limiter.used, limits.limiter.available) == ({}, {("R", 0): 4})
            meter.tickets.release(1)
            await answers(*submit(model, 1))

    run(test())


def test_a_change_of_instances_that_could_never_run_is_refused() -> None:
    async def test() -> None:
        limits, meter = RateLimits([ResourceLimit("R", 2)]), Meter()
        with limited(limits, (needing(R), meter.backend("m"))) as (model,):
            wanted = replace(model.spec, instance_groups=groups(ResourceSpec("R", 3)))
            with pytest.raises(ModelLoadError, match="the minimum required count is 3"):
                model.regroup(wanted, None, NO_WARMUP)
            meter.tickets.release(1)
            await answers(*submit(model, 1))
            assert limits.limiter.available == {("R", 0): 2}

    run(test())
