"""Which version a sequence began with, for as long as it goes on: pure decisions on an injected clock."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from naiad.clock import Clock

IDLE_S: Final = 600
"""A sequence without requests for so long is forgotten."""
MAX_SEQUENCES: Final = 65_536
"""How many sequences are remembered for one route; beyond it the one that was idle longest is forgotten."""
_NS_PER_S: Final = 1_000_000_000


class StickyVersions:
    """The versions of sequences by correlation id."""

    __slots__ = ("_clock", "_found", "_idle_ns", "_limit")

    def __init__(self, clock: Clock, idle_s: float = IDLE_S, limit: int = MAX_SEQUENCES) -> None:
        self._clock = clock
        self._idle_ns = int(idle_s * _NS_PER_S)
        self._limit = limit
        self._found: OrderedDict[int | str, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def version(self, correlation_id: int | str) -> int | None:
        """The version that a sequence is at; None for one that is not known."""
        kept = self._found.get(correlation_id)
        if kept is None or self._clock.now_ns() - kept[1] > self._idle_ns:
            return None
        return kept[0]

    def keep(self, correlation_id: int | str, version: int) -> None:
        """A request of a sequence went to ``version``."""
        found, now_ns = self._found, self._clock.now_ns()
        found[correlation_id] = (version, now_ns)
        found.move_to_end(correlation_id)
        # Two at a time are enough to keep up: one comes for each call.
        for _ in range(2):
            first = next(iter(found))
            if len(found) <= self._limit and now_ns - found[first][1] <= self._idle_ns:
                return
            del found[first]

    def forget(self, correlation_id: int | str) -> None:
        """A sequence has ended."""
        self._found.pop(correlation_id, None)
