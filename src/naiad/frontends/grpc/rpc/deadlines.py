"""The deadlines of all calls of a server: one timer for all, set for the earliest.

Calls are in buckets of a few milliseconds, so that adding and removing one costs a look-up.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Final, Protocol

from naiad.clock import Clock

TICK_NS: Final = 5_000_000
"""A call ends at most this long after its deadline, and never before it."""
LONGEST_NS: Final = 366 * 86_400 * 10**9
"""A longer timeout is no deadline."""
CLOSE_NS: Final = 20_000_000
"""A caller that cancels this shortly before its deadline does so because of it."""
_STALE: Final = 256


class Expiring(Protocol):
    """A call with a deadline; ``tick`` belongs to ``Deadlines``."""

    tick: int

    def expire(self) -> None:
        """The deadline has passed; the call is forgotten here."""


class Deadlines:
    """Calls by their deadline. ``close`` cancels the timer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[int, set[Expiring]] = {}
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, call: Expiring, timeout_ns: int) -> None:
        """Let ``call`` expire in ``timeout_ns``."""
        if timeout_ns > LONGEST_NS:
            call.tick = -1
            return
        # Rounded up: a call must not end before its deadline.
        tick = (self._clock.now_ns() + timeout_ns) // TICK_NS + 1
        call.tick = tick
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = set()
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._arm()
        bucket.add(call)

    def is_about_to_pass(self, call: Expiring) -> bool:
        """Whether the deadline of ``call`` is at most ``CLOSE_NS`` away."""
        return 0 < call.tick <= (self._clock.now_ns() + CLOSE_NS) // TICK_NS + 1

    def remove(self, call: Expiring) -> None:
        """Forget a call that has ended."""
        bucket = self._buckets.get(call.tick)
        if bucket is None:
            return
        bucket.discard(call)
        if not bucket:
            del self._buckets[call.tick]
            # The heap keeps the ticks of removed buckets. It is rebuilt now and then, since most calls end long before.
            if len(self._ticks) > 2 * len(self._buckets) + _STALE:
                self._ticks = sorted(self._buckets)

    def expire(self) -> None:
        """End the calls whose time has come."""
        now = self._clock.now_ns() // TICK_NS
        while self._ticks and self._ticks[0] <= now:
            # Popped first: ``expire`` and ``remove`` of these calls then find no bucket to change.
            for call in self._buckets.pop(heapq.heappop(self._ticks), ()):
                call.expire()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ticks:
            delay_ns = max(0, self._ticks[0] * TICK_NS - self._clock.now_ns())
            # A millisecond later, because the loop counts whole ones: an early timer would only be armed again.
            self._timer = asyncio.get_running_loop().call_later(delay_ns / 1e9 + 1e-3, self.expire)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
