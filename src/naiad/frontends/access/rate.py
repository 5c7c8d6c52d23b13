"""A rate limit: a bucket of tokens that fills at a steady rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from naiad.clock import Clock

_NS_PER_S: Final = 1_000_000_000


class TokenBucket:
    """``per_second`` requests in the long run, ``burst`` of them at once.

    It stores one time: when the bucket will be full again (the generic cell rate algorithm of ATM, ITU-T I.371). So it
    needs no timer, and rounding errors do not add up.
    """

    __slots__ = ("_clock", "_full_ns", "_gap_ns", "_slack_ns")

    def __init__(self, per_second: float, burst: int, clock: Clock) -> None:
        self._clock = clock
        self._gap_ns = max(1, round(_NS_PER_S / per_second))
        self._slack_ns = self._gap_ns * (burst - 1)
        self._full_ns = clock.now_ns()

    def take(self) -> int:
        """Count one request; 0 within the limit. Beyond it nothing is counted; returns the nanoseconds to wait."""
        now_ns = self._clock.now_ns()
        # The time that passed while the bucket was full earns nothing.
        full_ns = max(self._full_ns, now_ns)
        wait_ns = full_ns - now_ns - self._slack_ns
        if wait_ns > 0:
            return wait_ns
        self._full_ns = full_ns + self._gap_ns
        return 0
