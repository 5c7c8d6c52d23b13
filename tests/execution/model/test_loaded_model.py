"""A loaded model on a real loop: batching, delay, order, cancelling, the end, and every request answered once."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Mapping

import numpy as np
import pytest

from naiad.backend_api.backend import Arrays, Instance
from naiad.config.spec import BatchingSpec, InstanceGroupSpec, ModelSpec
from naiad.errors import BackendError, CancelledError, InternalError, ModelLoadError, NaiadError, ServerStoppingError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.request import RequestOptions
from support.event_loops import LOOPS, WAIT_S, run, until
from support.loaded_models import (
    POISON,
    Caller,
    Execute,
    FunctionBackend,
    identity,
    loaded,
    negate,
    picky,
    spec,
    tensor,
)

MS = 1_000_000

loops = pytest.mark.parametrize("loop", sorted(LOOPS))


def batching(preferred: int = 8, delay_ms: float = 0, preserve_ordering: bool = False) -> BatchingSpec:
    return BatchingSpec((preferred,), int(delay_ms * MS), preserve_ordering)


class Gate:
    """Negates once it is opened; notes the batches that came."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.batches: list[list[float]] = []

    def __call__(self, inputs: Arrays, outputs: object) -> Arrays:
        self.batches.append(inputs["x"].ravel().tolist())
        self.entered.set()
        assert self.open.wait(WAIT_S)
        return negate(inputs, ("y",))

    async def until_entered(self) -> None:
        await until(self.entered.is_set)


async def answers(callers: list[Caller]) -> list[list[float]]:
    return [await c.answer() for c in callers]


# Running


@loops
def test_one_request(loop: str) -> None:
    async def test() -> None:
        with loaded(spec(), negate) as model:
            caller = Caller(1, 2)
            model.submit(caller)
            assert not caller.answers, "answered before the loop turned"
            assert await caller.answer() == [-1.0, -2.0]
            assert model.in_flight == 0

    run(test(), loop)


@loops
@pytest.mark.parametrize("delay_ms", ["0", "2"])
def test_the_identity_backend(loop: str, delay_ms: str) -> None:
    """With and without a delay: in a thread, and on the loop."""

    async def test() -> None:
        model_spec = spec(batching=batching(), count=2, parameters={"execute_delay_ms": delay_ms})
        with loaded(model_spec, identity(model_spec)) as model:
            callers = [Caller(i, i + 0.5) for i in range(20)]
            for caller in callers:
                model.submit(caller)
            assert await answers(callers) == [[i, i + 0.5] for i in range(20)]
            assert model.in_flight == 0
            assert model.statistics.success.count == 20

    run(test(), loop)


def test_requests_of_one_loop_turn_run_together() -> None:
    gate = Gate()
    gate.open.set()

    async def test() -> None:
        with loaded(spec(batching=batching()), gate) as model:
            callers = [Caller(i) for i in range(8)]
            for caller in callers:
                model.submit(caller)
            assert await answers(callers) == [[-float(i)] for i in range(8)]

    run(test())
    assert gate.batches == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_without_a_batcher_requests_run_one_by_one() -> None:
    gate = Gate()
    gate.open.set()

    async def test() -> None:
        with loaded(spec(), gate) as model:
            callers = [Caller(i) for i in range(3)]
            for caller in callers:
                model.submit(caller)
            await answers(callers)

    run(test())
    assert gate.batches == [[0], [1], [2]]


def test_a_model_without_batch_dimension_ignores_its_batcher() -> None:
    async def test() -> None:
        with loaded(spec(max_batch_size=0, batching=batching()), negate) as model:
            callers = [Caller(i) for i in range(3)]
            for caller in callers:
                model.submit(caller)
            assert await answers(callers) == [[-0.0], [-1.0], [-2.0]]
            assert model.statistics.execution_count == 3

    run(test())


def test_requests_with_other_shapes_are_kept_apart() -> None:
    shapes: list[tuple[int, ...]] = []

    def execute(inputs: Arrays, outputs: object) -> Arrays:
        shapes.append(inputs["x"].shape)
        return negate(inputs, ("y",))

    async def test() -> None:
        with loaded(spec(batching=batching(delay_ms=1)), execute) as model:
            wide = RequestOptions(("y",), 1, (("x", (2,)),))
            callers = [Caller(1), Caller(2, options=wide), Caller(3, options=wide), Caller(4)]
            for caller in callers[1:3]:
                caller.inputs = {"x": np.ones((1, 2), np.float32)}
            for caller in callers:
                model.submit(caller)
            await answers(callers)

    run(test())
    assert shapes == [(1, 1), (2, 2), (1, 1)]


# Milliseconds are measured.
@pytest.mark.serial
@loops
@pytest.mark.parametrize("delay_ms", [0.3, 5, 20])
def test_a_lone_request_waits_for_the_delay_and_no_longer(loop: str, delay_ms: float) -> None:
    waits: list[float] = []

    async def test() -> None:
        with loaded(spec(batching=batching(delay_ms=delay_ms)), negate) as model:
            for _ in range(8):
                caller = Caller(1)
                model.submit(caller)
                await caller.answer()
                waits.append((time.monotonic_ns() - caller.received_ns) / MS)

    run(test(), loop)
    assert min(waits) >= delay_ms
    # The best of several: a busy machine may hold up any one of them.
    assert min(waits) < delay_ms + 5


def test_a_full_batch_does_not_wait() -> None:
    async def test() -> None:
        with loaded(spec(batching=batching(delay_ms=60_000)), negate) as model:
            callers = [Caller(i) for i in range(8)]
            for caller in callers:
                model.submit(caller)
            await answers(callers)
            assert model.statistics.execution_count == 1

    run(test())


@loops
def test_wake_ups_are_not_lost(loop: str) -> None:
    """Requests at random moments around the delay: none may be forgotten in the queue."""

    async def test() -> None:
        dice = random.Random(7)
        with loaded(spec(batching=batching(delay_ms=0.4)), negate) as model:
            callers = []
            for i in range(150):
                callers.append(Caller(i))
                model.submit(callers[-1])
                if dice.random() < 0.8:
                    await asyncio.sleep(dice.choice([0, 0, 0.0002, 0.0004, 0.0006, 0.001]))
            assert await answers(callers) == [[-float(i)] for i in range(150)]

    run(test(), loop)


def test_instances_work_side_by_side() -> None:
    barrier = threading.Barrier(3)

    def execute(inputs: Arrays, outputs: object) -> Arrays:
        barrier.wait(WAIT_S)
        return negate(inputs, ("y",))

    async def test() -> None:
        with loaded(spec(count=3), execute) as model:
            callers = [Caller(i) for i in range(6)]
            for caller in callers:
                model.submit(caller)
            await answers(callers)

    run(test())


def unequal(index: int) -> Execute:
    def execute(inputs: Arrays, outputs: object) -> Arrays:
        time.sleep(0.004 if index else 0)
        return picky(inputs, outputs)

    return execute


@loops
def test_answers_keep_the_order_of_the_requests(loop: str) -> None:
    async def test() -> None:
        order: list[Caller] = []
        ordered = spec(batching=batching(1, preserve_ordering=True), count=3, max_batch_size=2)
        with loaded(ordered, FunctionBackend(unequal)) as model:
            callers = [Caller(POISON if i % 7 == 3 else i, order=order) for i in range(60)]
            for i, caller in enumerate(callers):
                model.submit(caller)
                if i % 5 == 0:
                    await asyncio.sleep(0)
            await asyncio.gather(*(c.done.wait() for c in callers))
            assert order == callers
            assert [c.answers[0][1] is not None for c in callers] == [i % 7 == 3 for i in range(60)]
            assert all(len(c.answers) == 1 for c in callers)

    run(test(), loop)


def test_without_that_option_the_faster_one_overtakes() -> None:
    gate = Gate()

    async def test() -> None:
        order: list[Caller] = []
        with loaded(spec(count=2), FunctionBackend(lambda index: negate if index == 0 else gate)) as model:
            slow, fast = Caller(1, order=order), Caller(2, order=order)
            model.submit(slow)
            await gate.until_entered()
            model.submit(fast)
            await fast.answer()
            gate.open.set()
            await slow.answer()
            assert order == [fast, slow]

    run(test())


# Failures


@loops
def test_a_poisoned_request_fails_alone(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        with loaded(spec(batching=batching(), count=2), picky) as model:
            callers = [Caller(POISON if i % 4 == 1 else i) for i in range(64)]
            for caller in callers:
                model.submit(caller)
            for i, caller in enumerate(callers):
                if i % 4 == 1:
                    with pytest.raises(BackendError, match="RuntimeError: poisoned"):
                        await caller.answer()
                else:
                    assert await caller.answer() == [-float(i)]
            assert model.statistics.success.count == 48
            assert model.statistics.failures["BACKEND"] == 16

    run(test(), loop)
    assert "failed for model 'm': model 'm' failed: RuntimeError: poisoned" in caplog.text


def test_inputs_that_cannot_be_put_together_are_an_error() -> None:
    """Small batches are put together on the loop, where nobody would hear of it."""

    async def test() -> None:
        unfit = spec([tensor("x", reshape=(2,))], batching=batching())
        with loaded(unfit, negate) as model:
            callers = [Caller(1), Caller(2)]
            for caller in callers:
                model.submit(caller)
            for caller in callers:
                with pytest.raises(BackendError, match="ValueError: cannot reshape"):
                    await caller.answer()
            assert (model.in_flight, model.statistics.failure.count) == (0, 2)

    run(test())


class Broken(Caller):
    """Cannot send what it is given; an error it can."""

    __slots__ = ()

    def respond(self, outputs: Mapping[str, np.ndarray], error: NaiadError | None) -> None:
        if error is None:
            raise TypeError("cannot encode")
        super().respond(outputs, error)


class Gone(Caller):
    __slots__ = ()

    def respond(self, outputs: Mapping[str, np.ndarray], error: NaiadError | None) -> None:
        raise ConnectionError("gone")


@pytest.mark.parametrize("preserve_ordering", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_an_answer_that_cannot_be_sent_harms_no_other(
    together: bool, preserve_ordering: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        model_spec = spec(batching=batching(8 if together else 1, preserve_ordering=preserve_ordering))
        with loaded(model_spec, negate) as model:
            callers = [Caller(0), Broken(1), Gone(2), Caller(3)]
            for caller in callers:
                model.submit(caller)
            assert await callers[3].answer() == [-3.0]
            assert await callers[0].answer() == [-0.0]
            with pytest.raises(InternalError, match="could not be sent"):
                await callers[1].answer()
            assert model.in_flight == 0

    with caplog.at_level(logging.ERROR):
        run(test())
    assert caplog.text.count("the answer could not be sent") == 2


class FailingBackend(FunctionBackend):
    """Its second instance cannot be created."""

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        if index == 1:
            raise SystemExit("no memory for me")
        return super().create_instance(group, index)


def test_when_one_instance_cannot_start_the_others_are_closed() -> None:
    backend = FailingBackend(lambda index: negate)

    async def test() -> None:
        model = LoadedModel(spec(count=3), 1, backend, asyncio.get_running_loop())
        with pytest.raises(ModelLoadError, match="instance 'm_1' failed to start: SystemExit: no memory for me"):
            model.start()

    run(test())
    assert [len(i.closed_in) for i in backend.instances] == [1]
    assert backend.closed == 1
    assert not [t for t in threading.enumerate() if t.name.startswith("naiad-m_")]


# Giving up


def test_a_cancelled_request_leaves_the_queue_at_once() -> None:
    gate = Gate()

    async def test() -> None:
        with loaded(spec(batching=batching(1)), gate) as model:
            running, queued, last = Caller(1), Caller(2), Caller(3)
            for caller in (running, queued, last):
                model.submit(caller)
            await gate.until_entered()
            assert model.statistics.pending == 2
            model.cancel(queued)
            assert model.statistics.pending == 1
            with pytest.raises(CancelledError):
                await queued.answer()
            model.cancel(running)
            assert running.answers == []
            gate.open.set()
            assert await last.answer() == [-3.0]
            assert len(running.answers) == 1
            model.cancel(last)
            assert len(last.answers) == 1
            assert model.statistics.failures["CANCELED"] == 1
            assert (model.in_flight, model.statistics.pending) == (0, 0)

    run(test())
    assert [2.0] not in gate.batches


def test_cancelling_keeps_the_order_of_the_others() -> None:
    gate = Gate()

    async def test() -> None:
        order: list[Caller] = []
        with loaded(spec(batching=batching(1, preserve_ordering=True)), gate) as model:
            callers = [Caller(i, order=order) for i in range(4)]
            for caller in callers:
                model.submit(caller)
            await gate.until_entered()
            model.cancel(callers[2])
            gate.open.set()
            await asyncio.gather(*(c.done.wait() for c in callers))
            assert order == callers

    run(test())


# The end


def test_a_stopping_model_refuses_and_finishes() -> None:
    gate = Gate()

    async def test() -> None:
        drained = asyncio.Event()
        with loaded(spec(batching=batching(1)), gate) as model:
            callers = [Caller(i) for i in range(3)]
            for caller in callers:
                model.submit(caller)
            model.stop_accepting()
            model.when_drained(drained.set)
            with pytest.raises(ServerStoppingError, match="has stopped accepting new inference requests"):
                model.submit(Caller(9))
            assert not drained.is_set()
            gate.open.set()
            await asyncio.wait_for(drained.wait(), WAIT_S)
            assert await answers(callers) == [[-0.0], [-1.0], [-2.0]]
            assert (model.in_flight, model.statistics.pending) == (0, 0)

    run(test())


def test_nothing_in_flight_is_drained_at_once() -> None:
    async def test() -> None:
        called: list[int] = []
        with loaded(spec(), negate) as model:
            model.when_drained(lambda: called.append(1))
            assert called == [1]

    run(test())


def test_cancelling_the_last_request_drains() -> None:
    async def test() -> None:
        called: list[int] = []
        with loaded(spec(batching=batching(delay_ms=60_000)), negate) as model:
            caller = Caller(1)
            model.submit(caller)
            await asyncio.sleep(0)
            model.when_drained(lambda: called.append(1))
            assert called == []
            model.cancel(caller)
            assert called == [1]

    run(test())


# The time is measured.
@pytest.mark.slow
@pytest.mark.serial
def test_closing_with_stuck_instances_takes_the_time_limit_once() -> None:
    gate = Gate()

    async def test() -> None:
        backend = FunctionBackend(lambda index: gate)
        model = LoadedModel(spec(count=4), 1, backend, asyncio.get_running_loop())
        model.start()
        callers = [Caller(i) for i in range(4)]
        for caller in callers:
            model.submit(caller)
        await until(lambda: len(gate.batches) == 4)
        begun = time.monotonic()
        assert not model.close(2)
        # Four times that, if it were for each of them.
        assert time.monotonic() - begun < 7.5
        assert backend.closed == 0
        gate.open.set()
        assert await answers(callers) == [[-float(i)] for i in range(4)]
        assert model.close(WAIT_S)
        assert backend.closed == 1
        assert [len(i.closed_in) for i in backend.instances] == [1] * 4
        model.detach()

    run(test())


def test_a_backend_that_fails_to_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Sticky(FunctionBackend):
        def close(self) -> None:
            raise RuntimeError("stuck")

    async def test() -> None:
        with loaded(spec(), Sticky(lambda index: negate)):
            pass

    run(test())
    assert "the backend of model 'm' failed to close" in caplog.text


def test_results_after_the_loop_is_gone_are_dropped() -> None:
    gate = Gate()
    kept: list[LoadedModel] = []

    async def test() -> None:
        model = LoadedModel(spec(), 1, FunctionBackend(lambda index: gate), asyncio.get_running_loop())
        model.start()
        model.submit(Caller(1))
        await gate.until_entered()
        kept.append(model)

    run(test(), "asyncio")
    gate.open.set()
    assert kept[0].close(WAIT_S)


# Everything together

SPECS: dict[str, ModelSpec] = {
    "single": spec(count=2),
    "batched": spec(batching=batching(), count=2),
    "delayed": spec(batching=batching(delay_ms=0.3), count=2),
    "ordered": spec(batching=batching(preserve_ordering=True), count=3),
}


@loops
@pytest.mark.parametrize("kind", sorted(SPECS))
def test_two_thousand_requests_are_each_answered_once(loop: str, kind: str) -> None:
    async def test() -> None:
        dice = random.Random(f"{loop} {kind}")
        with loaded(SPECS[kind], picky) as model:
            callers, cancelled = [], set()
            for i in range(2000):
                values = [float(i)] * dice.randint(1, 3)
                callers.append(Caller(*([POISON] if dice.random() < 0.01 else values)))
                model.submit(callers[-1])
                if dice.random() < 0.02:
                    victim = dice.choice(callers[-20:])
                    model.cancel(victim)
                    cancelled.add(victim)
                if dice.random() < 0.05:
                    await asyncio.sleep(0)
            drained = asyncio.Event()
            model.stop_accepting()
            model.when_drained(drained.set)
            await asyncio.wait_for(drained.wait(), WAIT_S)
            for i, caller in enumerate(callers):
                assert len(caller.answers) == 1
                outputs, error = caller.answers[0]
                if isinstance(error, CancelledError):
                    assert caller in cancelled
                elif POISON in caller.inputs["x"]:
                    assert isinstance(error, BackendError)
                else:
                    assert error is None
                    assert set(outputs["y"].ravel().tolist()) == {-float(i)}
                    assert len(outputs["y"]) == caller.options.rows
            counted = model.statistics
            failed = sum(c.answers[0][1] is not None for c in callers)
            assert (counted.success.count, counted.failure.count) == (2000 - failed, failed)
            assert counted.inference_count == sum(c.options.rows for c in callers if c.answers[0][1] is None)
            assert counted.pending == 0
            assert sum(b.compute_infer.count for b in counted.batches.values()) == counted.execution_count

    run(test(), loop)
