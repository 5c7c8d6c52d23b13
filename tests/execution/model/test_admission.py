"""What a model counts against the server's bounds: exact at every moment, and nothing is left of it in the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from threading import Event

import numpy as np
import pytest

from naiad.backend_api.backend import Arrays
from naiad.config.spec import BatchingSpec
from naiad.errors import NaiadError, QueueFullError
from naiad.request import OBJECT_BYTES, InferRequest, RequestOptions, memory_of
from naiad.scheduling.admission import RequestBudget
from support.event_loops import WAIT_S, run, until
from support.loaded_models import POISON, Caller, Execute, loaded, negate, picky, spec


class Fussy(Caller):
    """Raises when it is answered."""

    __slots__ = ()

    def respond(self, outputs: Mapping[str, np.ndarray], error: NaiadError | None) -> None:
        super().respond(outputs, error)
        raise RuntimeError("cannot be sent")


class Begun(Caller):
    """Belongs to a request that was accepted."""

    __slots__ = ()
    can_be_refused = False


def test_the_memory_of_inputs() -> None:
    texts = np.array([[b"abc", b""]], np.object_)
    assert memory_of({"a": np.zeros((2, 3), np.float32)}) == 24
    assert memory_of({"t": texts, "a": np.zeros(1, np.uint8)}) == 2 * (8 + OBJECT_BYTES) + 3 + 1
    assert InferRequest(RequestOptions(()), {"t": texts}).held_bytes == memory_of({"t": texts})


def negate_behind(gate: Event) -> Execute:
    """As ``negate``, once the gate is open."""

    def wait(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        assert gate.wait(WAIT_S)
        return negate(inputs, ("y",))

    return wait


@pytest.mark.parametrize("batches", [False, True])
def test_what_has_no_room_is_refused_and_what_is_answered_makes_room(batches: bool) -> None:
    gate = Event()
    wait = negate_behind(gate)

    async def test() -> None:
        budget = RequestBudget(max_requests=5, max_bytes=64)
        batching = BatchingSpec((8,), 0) if batches else None
        with loaded(spec(batching=batching), wait, budget) as model:
            callers = [Caller(1, 2) for _ in range(5)]
            for caller in callers:
                model.submit(caller)
            assert (budget.requests, budget.bytes, model.in_flight) == (5, 40, 5)
            with pytest.raises(QueueFullError, match="--max-in-flight-requests allows"):
                model.submit(Caller(1))
            with pytest.raises(QueueFullError):
                model.check_room(0)
            failures = model.statistics.failures
            assert (failures["REJECTED"], model.statistics.pending) == (2, 5 if batches else 4)
            begun = Begun(3)
            model.submit(begun)
            assert (budget.requests, budget.bytes) == (6, 44)
            gate.set()
            for caller in (*callers, begun):
                await caller.answer()
            assert (budget.requests, budget.bytes, model.in_flight) == (0, 0, 0)
            model.submit(last := Caller(1, 2, 3))
            assert await last.answer() == [-1, -2, -3]

    run(test())


def test_one_model_leaves_room_for_others() -> None:
    gate = Event()
    wait = negate_behind(gate)

    async def test() -> None:
        budget = RequestBudget(max_per_model=2)
        with loaded(spec(), wait, budget) as stuck, loaded(spec(), negate, budget) as other:
            callers = [Caller(1), Caller(2)]
            for caller in callers:
                stuck.submit(caller)
            with pytest.raises(QueueFullError, match="model 'm' has 2 unanswered requests"):
                stuck.submit(Caller(3))
            other.submit(served := Caller(4))
            assert await served.answer() == [-4]
            assert budget.requests == 2
            gate.set()
            for caller in callers:
                await caller.answer()
            assert (budget.requests, budget.bytes) == (0, 0)

    run(test())


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_left_whatever_becomes_of_the_requests(seed: int, ordered: bool) -> None:
    """Answered, failed, cancelled in the queue and while running, refused, and with callers that raise."""
    chance = random.Random(seed)

    async def test() -> None:
        budget = RequestBudget(max_requests=40, max_bytes=400, max_per_model=30)
        batching = BatchingSpec((4,), 200_000, ordered)
        accepted: list[Caller] = []
        refused = 0
        with (
            loaded(spec(batching=batching, count=2), picky, budget) as batched,
            loaded(spec(), picky, budget) as single,
        ):
            for _ in range(600):
                model = chance.choice((batched, single))
                value = POISON if chance.random() < 0.1 else 1.0
                kind = Fussy if chance.random() < 0.1 else Caller
                caller = kind(*[value] * chance.randint(1, 4))
                try:
                    model.submit(caller)
                    accepted.append(caller)
                except QueueFullError:
                    refused += 1
                assert budget.requests <= 40
                # Those whose answers wait for earlier ones are not in flight any more.
                assert ordered or budget.requests == batched.in_flight + single.in_flight
                assert 0 <= budget.bytes <= 400
                if accepted and chance.random() < 0.2:
                    chance.choice((batched, single)).cancel(chance.choice(accepted))
                if chance.random() < 0.2:
                    await asyncio.sleep(0)
            await until(lambda: all(c.answers for c in accepted))
            assert (budget.requests, budget.bytes) == (0, 0)
            assert (batched.in_flight, single.in_flight) == (0, 0)
            assert (batched.statistics.pending, single.statistics.pending) == (0, 0)
            # Whose caller raised is told so once more.
            assert all(len(c.answers) == (2 if isinstance(c, Fussy) else 1) for c in accepted)
            assert refused > 0
            counted = sum(m.statistics.success.count + m.statistics.failure.count for m in (batched, single))
            assert counted == 600

    run(test())


def test_answers_that_wait_for_an_earlier_one_count() -> None:
    gate = Event()
    first = Event()

    def wait(inputs: Arrays, outputs: object) -> Arrays:
        if not first.is_set():
            first.set()
            assert gate.wait(WAIT_S)
        return negate(inputs, ("y",))

    async def test() -> None:
        budget = RequestBudget(max_requests=10)
        batching = BatchingSpec((1,), 0, preserve_ordering=True)
        with loaded(spec(batching=batching, count=2, max_batch_size=1), wait, budget) as model:
            callers = [Caller(0)]
            model.submit(callers[0])
            await until(first.is_set)
            with pytest.raises(QueueFullError):
                for n in range(1, 100):
                    model.submit(caller := Caller(n))
                    callers.append(caller)
                    await until(lambda: model.in_flight == 1)
            assert len(callers) == 10
            assert not any(caller.answers for caller in callers)
            gate.set()
            assert [await caller.answer() for caller in callers] == [[-n] for n in range(10)]
            assert (budget.requests, budget.bytes, model.in_flight) == (0, 0, 0)

    run(test())
