"""A line in which loads wait for room: one after the other, but for those that others wait for. On the loop only."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

LOOK_S = 0.05
"""How often those that wait look whether something else has changed."""


class Line:
    """Whoever is first has its turn until it leaves; the others wait in their order."""

    def __init__(self) -> None:
        self._places: deque[asyncio.Event] = deque()

    @asynccontextmanager
    async def turn(self, may_pass: Callable[[], bool]) -> AsyncIterator[None]:
        """Wait until all who came before have left, or until ``may_pass`` says that this one need not wait for them.

        The first may wait for what a load holds that waits for this one: in line they would wait for each other.
        """
        first = asyncio.Event()
        self._places.append(first)
        if self._places[0] is first:
            first.set()
        try:
            while not (first.is_set() or may_pass()):
                with suppress(TimeoutError):
                    await asyncio.wait_for(first.wait(), LOOK_S)
            yield
        finally:
            self._places.remove(first)
            if self._places:
                self._places[0].set()
