"""A sequence is cancelled and reaped at the same moment: its slot is given out once."""

from __future__ import annotations

import asyncio
import random
from time import monotonic

import pytest

from naiad.errors import CancelledError, InvalidArgumentError
from support.event_loops import run, until
from support.noted_requests import submit
from support.sequence_models import Caller, Totals, loaded, model_spec, sequences, standing

IDLE_MS = 5
SECONDS = 1.5


@pytest.mark.parametrize("oldest", [False, True], ids=["direct", "oldest"])
def test_a_sequence_that_is_cancelled_and_reaped_at_once(oldest: bool) -> None:
    async def test() -> None:
        chance = random.Random(5)
        with loaded(model_spec(sequences(oldest=oldest, slots=2, idle_ms=IDLE_MS), 2), Totals()) as model:
            number, outcomes, end = 0, set(), monotonic() + SECONDS
            while monotonic() < end:
                names = range(number + 1, number := number + 5)
                firsts = [Caller(name, 1.0, True) for name in names]
                submit(model, *firsts)
                # Two of them have a slot. The others get theirs when those end, in one way or the other.
                assert [await caller.answer() for caller in firsts[:2]] == [1.0, 1.0]
                await asyncio.sleep(IDLE_MS / 1000 * chance.uniform(0.9, 1.1))
                for first in firsts:
                    more = Caller(first.options.correlation_id, 2.0)
                    try:
                        model.submit(more)
                        model.cancel(more)
                    except InvalidArgumentError:
                        outcomes.add("reaped")
                        continue
                    with pytest.raises(CancelledError):
                        await more.answer()
                    outcomes.add("cancelled")
                    standing(model)
                await until(lambda: standing(model) == 0 and model.in_flight == 0)
            assert {"reaped", "cancelled"} <= outcomes

    run(test())
