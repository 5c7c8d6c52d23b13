"""Finds out for how long a load kept the event loop from running, and with it all requests."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

WORTH_A_LINE_S: Final = 0.25
"""Shorter stalls are not logged. A machine without a free core makes the loop late by less."""
_TICK_S: Final = 0.05


class LoopStalls:
    """Measures how late the event loop is, from now until ``end``.

    A framework that keeps Python's lock while it loads a model stops the loop for as long. This is one timer, so every
    load has it; what made the loop late is found out by ``--slow-requests``, with a thread of its own.

    Attributes:
        worst_s: the longest that the loop was late, in seconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.worst_s = 0.0
        self._wait()

    def _wait(self) -> None:
        # Not the loop's own time, which uvloop reads once per turn: that may be before the stall.
        self._due_s = monotonic() + _TICK_S
        self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._measure()
        self._wait()

    def _measure(self) -> None:
        self.worst_s = max(self.worst_s, monotonic() - self._due_s)

    def end(self) -> None:
        """Stop measuring. A timer that is due and has not run yet counts."""
        self._timer.cancel()
        self._measure()
