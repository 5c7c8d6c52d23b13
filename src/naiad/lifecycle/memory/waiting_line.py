"""A line in which loads wait for room: one after the other, but for those that others wait for. On the loop only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

LOOK_S = 0.05
"""How often those that wait look whether something else has changed."""


class WaitingLine:
    """Whoever is first has its turn until it leaves; the others wait in their order. Each load is known by a name."""

    def __init__(self) -> None:
        # Set for those that have their turn.
        self._places: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, name: str, may_pass: Callable[[], bool]) -> AsyncIterator[None]:
        """Wait until all who came before have left, or until ``may_pass`` says that this one need not wait for them.

        The first may wait for what a load holds that waits for this one: in line they would wait for each other.
        """
        place = self._places[name] = asyncio.Event()
        self._let_first_go()
        try:
            while not place.is_set():
                if may_pass():
                    place.set()
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(place.wait(), LOOK_S)
            yield
        finally:
            del self._places[name]
            self._let_first_go()

    def behind(self, name: str) -> list[str]:
        """Who waits until ``name`` has left: all that have not had their turn, if it is the first."""
        if next(iter(self._places), None) != name:
            return []
        return [other for other, place in self._places.items() if not place.is_set()]

    def _let_first_go(self) -> None:
        for place in self._places.values():
            place.set()
            return
