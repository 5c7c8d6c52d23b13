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

    __slots__ = ("_is_due", "_left_ns", "_now_ns", "_waiting")

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self._left_ns = SLICE_NS
        self._is_due = False
        self._waiting: deque[Steps] = deque()

    def run(self, steps: Steps) -> None:
        """Take all steps: at once as long as the slice lasts, then in later turns of the loop, behind what waits there.

        A step that raises is the last one of its work; at once its exception is the caller's.
        """
        self._waiting.append(steps)
        if len(self._waiting) == 1:
            self._use_slice()

    def _use_slice(self) -> None:
        # First, since a step that raises must not stop the others.
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin_turn)
        if self._left_ns <= 0:
            return
        begin_ns = self._now_ns()
        try:
            self._take_steps(begin_ns + self._left_ns)
        finally:
            self._left_ns -= self._now_ns() - begin_ns

    def _take_steps(self, end_ns: int) -> None:
        while self._waiting:
            steps = self._waiting.popleft()
            for _ in steps:
                if self._now_ns() >= end_ns:
                    # Last again: short work need not wait for the end of long work.
                    self._waiting.append(steps)
                    return

    def _begin_turn(self) -> None:
        self._is_due = False
        self._left_ns = SLICE_NS
        if self._waiting:
            self._use_slice()
