"""Spreads large writes over the turns of an event loop, so that it reads from other connections in between.

The responses of a batch come together. The system takes some 10 ms to copy 60 of 1 MB into their sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

TURN_BYTES: Final = 1 << 22
"""The bytes after which further large writes wait for the next turn of the loop. They take about a millisecond."""

LARGE_BYTES: Final = 1 << 16
"""The size from which on a write counts."""

Callback = Callable[[], object]


class LargeWrites:
    """What may be written in this turn of the loop, and who waits for a later one. Used on the event loop only.

    Args:
        call_soon: schedules a callback for the next turn of the loop.
    """

    __slots__ = ("_call_soon", "_is_due", "_left", "_waiting")

    def __init__(self, call_soon: Callable[[Callback], object]) -> None:
        self._call_soon = call_soon
        self._left = TURN_BYTES
        self._is_due = False
        self._waiting: deque[Callback] = deque()

    @property
    def has_room(self) -> bool:
        """Whether more may be written in this turn. Who writes calls ``spend``, and who does not calls ``wait``."""
        return self._left > 0 and not self._waiting

    def spend(self, size: int) -> None:
        """Note that ``size`` bytes were written."""
        self._left -= size
        # What is left lasts for later turns too, so that most large writes cost no callback.
        if self._left <= 0:
            self._schedule()

    def wait(self, write: Callback) -> None:
        """Call ``write`` in a turn in which there is room: who waits first comes first."""
        self._waiting.append(write)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_due = False
        self._left = TURN_BYTES
        while self._waiting and self._left > 0:
            self._waiting.popleft()()
        if self._waiting:
            self._schedule()
