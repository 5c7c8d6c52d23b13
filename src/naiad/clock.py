"""Replaceable time: policies read a ``Clock``, so that tests advance it by hand and never sleep."""

from __future__ import annotations

import time
from typing import Final, Protocol

NEVER: Final = 0
"""The monotonic time, in nanoseconds, of an event that never comes."""


class Clock(Protocol):
    """Monotonic time in integer nanoseconds and wall time in integer milliseconds since 1970."""

    def now_ns(self) -> int: ...

    def wall_ms(self) -> int: ...


class SystemClock:
    """The machine's own clocks."""

    now_ns = staticmethod(time.monotonic_ns)

    @staticmethod
    def wall_ms() -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns

    def wall_ms(self) -> int:
        return self._now_ns // 1_000_000

    def advance(self, ns: int) -> None:
        """Move forward by ``ns`` nanoseconds."""
        if ns < 0:
            raise ValueError("a clock cannot go back")
        self._now_ns += ns
