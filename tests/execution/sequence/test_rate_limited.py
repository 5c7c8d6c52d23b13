"""Sequences whose instances share resources with other models: when they wait for a turn, and when they do not."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from execution.model.test_rate_limited import Meter, R, groups, limited, needing, submit
from naiad.config.rate_limiter import ResourceSpec
from naiad.execution.model.rate_limits import RateLimits
from naiad.execution.sequence.model import SequenceModel
from naiad.scheduling.rate_limiter import ResourceLimit
from support.event_loops import run, until
from support.loaded_models import FunctionBackend
from support.sequence_models import Caller, Totals, model_spec, sequences

HOUR_NS = 3_600_000_000_000
WAITS = {"direct": {"minimum_slot_utilization": 0.5}, "oldest": {"oldest": True, "slots": 2}}


@pytest.mark.parametrize("strategy", list(WAITS))
def test_sequences_that_wait_for_others_keep_nothing_from_other_models(strategy: str) -> None:
    async def test() -> None:
        meter = Meter()
        limits = RateLimits([ResourceLimit("r", 6)])
        held, small = needing(ResourceSpec("R", 3)), needing(ResourceSpec("R", 2))
        section = sequences(max_queue_delay_ns=HOUR_NS, **WAITS[strategy])  # type: ignore[arg-type]
        found = replace(model_spec(section), instance_groups=groups(ResourceSpec("R", 4)))
        models = (held, meter.backend("held")), (small, meter.backend("small"))
        with limited(limits, *models) as (first, third):
            loop = asyncio.get_running_loop()
            second = SequenceModel(found, 1, FunctionBackend(lambda index: Totals()), loop, limits=limits)
            second.start()
            callers = submit(first, 1)
            await until(lambda: meter.running == 1)
            one, other = Caller(1, 1.0, True, True), Caller(2, 2.0, True, True)
            second.submit(one)
            await asyncio.sleep(0)
            # There is room for this one, and the sequence waits for another one.
            callers += submit(third, 1)
            await until(lambda: meter.running == 2)
            # Now it wants its turn, and what comes later does not get in its way.
            second.submit(other)
            await asyncio.sleep(0)
            callers += submit(third, 1)
            meter.tickets.release(1)
            await until(lambda: len(meter.done) == 1)
            meter.tickets.release(2)
            assert (await one.answer(), await other.answer()) == (1.0, 2.0)
            for caller in callers:
                assert await caller.answer() == [2]
            assert second.statistics.execution_count == 1
            assert second.close(10)
            second.detach()

    run(test())


def test_the_wait_ends_with_the_delay() -> None:
    async def test() -> None:
        limits = RateLimits()
        section = sequences(max_queue_delay_ns=20_000_000, minimum_slot_utilization=0.5)
        found = replace(model_spec(section), instance_groups=groups(R, count=2))
        model = SequenceModel(
            found, 1, FunctionBackend(lambda index: Totals()), asyncio.get_running_loop(), limits=limits
        )
        model.start()
        # One for each instance; the second is told of a time that is later than that of the first.
        callers = [Caller(1, 1.0, True, True), Caller(2, 2.0, True, True)]
        for caller in callers:
            model.submit(caller)
            await asyncio.sleep(0)
        assert [await caller.answer() for caller in callers] == [1.0, 2.0]
        assert model.close(10)
        model.detach()
        assert limits.limiter.used == {}

    run(test())
