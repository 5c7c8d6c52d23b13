"""The version of a model that each sequence stays with: pure decisions on an injected clock."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from naiad.clock import Clock

IDLE_S: Final = 600
"""A sequence without requests for this time is dropped."""
MAX_SEQUENCES: Final = 65_536
"""The most sequences of one route; beyond it the longest idle sequence is dropped."""
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
        """The version of a sequence; None for an unknown one."""
        kept = self._found.get(correlation_id)
        # An idle sequence stays in the table: ``keep`` drops it.
        if kept is None or self._clock.now_ns() - kept[1] > self._idle_ns:
            return None
        return kept[0]

    def keep(self, correlation_id: int | str, version: int) -> None:
        """Note that a request of a sequence went to ``version``."""
        found, now_ns = self._found, self._clock.now_ns()
        found[correlation_id] = (version, now_ns)
        found.move_to_end(correlation_id)
        # Two per call keep up, for each call adds at most one. So no call takes long.
        for _ in range(2):
            first = next(iter(found))
            if len(found) <= self._limit and now_ns - found[first][1] <= self._idle_ns:
                return
            del found[first]

    def forget(self, correlation_id: int | str) -> None:
        """Drop a sequence that has ended."""
        self._found.pop(correlation_id, None)
