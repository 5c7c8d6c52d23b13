"""Long work on an event loop, such as a page about a thousand models, in slices with other callbacks in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Final

SLICE_NS: Final = 1_000_000
"""How long the slice of a turn takes, in nanoseconds; more by the rest of a step."""

Steps = Iterator[object]


class SlicedWork:
    """Takes the steps of iterators. Used on one event loop only."""

    __slots__ = ("_now_ns", "_waiting")

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self._waiting: deque[Steps] = deque()

    def run(self, steps: Steps) -> None:
        """Take all steps: those of short work at once, the rest of longer work in later turns of the loop.

        A step that raises is the last one of its work.
        """
        if self._waiting:
            self._waiting.append(steps)
        elif not self._are_done(steps):
            self._waiting.append(steps)
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        steps = self._waiting.popleft()
        try:
            if not self._are_done(steps):
                # Last again: short work need not wait for the end of long work.
                self._waiting.append(steps)
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._take_turn)

    def _are_done(self, steps: Steps) -> bool:
        """Take steps for the time of a slice; returns whether there are no more."""
        end_ns = self._now_ns() + SLICE_NS
        return all(self._now_ns() < end_ns for _ in steps)
