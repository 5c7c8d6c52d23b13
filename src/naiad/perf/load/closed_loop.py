"""A closed loop: so many requests are in flight at any time, and each response is followed by the next request."""

from __future__ import annotations

from collections import deque
from typing import Final

from naiad.perf.load.load import NEVER_NS, Load, clock
from naiad.perf.load.source import RequestSource
from naiad.perf.measure.recorder import Recorder
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import UNREACHED, PerfTarget, Place, Problem

REST_NS: Final = 100_000_000
"""How long a place rests whose last requests did not reach the server."""


class ClosedLoop(Load):
    """Keeps ``concurrency`` requests in flight.

    Args:
        total: how many requests are sent; 0 for no end.
    """

    def __init__(
        self,
        loop: EpollLoop,
        target: PerfTarget,
        source: RequestSource,
        recorder: Recorder,
        concurrency: int,
        total: int = 0,
    ) -> None:
        super().__init__(loop, target, source, recorder)
        self._total = total
        self._left = total if total else 1 << 62
        self._waiting_for_first: set[Place] = set()
        self._unreached_places: set[Place] = set()
        self._resting: deque[tuple[int, Place]] = deque()
        self._places = self._open_places(concurrency)

    def begin(self, now_ns: int) -> None:
        """Send the first request of each place."""
        super().begin(now_ns)
        self._waiting_for_first = set(self._places)
        for place in self._places:
            if self._left <= 0:
                break
            # Each has its own time: thousands of requests are not sent at one moment.
            self._send(place, clock())
        self._loop.flush()

    def _send(self, place: Place, now_ns: int) -> None:
        self._left -= 1
        self.in_flight += 1
        self._start(place, now_ns, now_ns)

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note the end of a request, and send the next one."""
        self._note_end(place, now_ns, problem)
        # Empty sets are passed over, as they are after the first moments of a load.
        if self._waiting_for_first:
            self._waiting_for_first.discard(place)
        if problem is None:
            if self._unreached_places:
                self._unreached_places.discard(place)
        elif problem[0] in UNREACHED and self._rests(place, now_ns):
            return
        if self.is_running and self._left > 0 and not self._loop.failure:
            self._left -= 1
            self._start(place, now_ns, now_ns)
        else:
            self.in_flight -= 1
            if not self.is_running:
                self._end_sequence(place, now_ns)

    def _rests(self, place: Place, now_ns: int) -> bool:
        """Let a place rest that did not reach the server twice in a row: it would do nothing but fail."""
        if place not in self._unreached_places or not self.is_running:
            self._unreached_places.add(place)
            return False
        self.in_flight -= 1
        self._resting.append((now_ns + REST_NS, place))
        return True

    def pump(self, now_ns: int) -> int:
        """Go on where a rest is over; returns when the next one is."""
        resting = self._resting
        while resting and resting[0][0] <= now_ns:
            _, place = resting.popleft()
            if self.is_running and self._left > 0 and not self._loop.failure:
                self._send(place, now_ns)
        return resting[0][0] if resting else NEVER_NS

    def stop(self) -> None:
        """Send nothing more but the ends of the sequences that are open."""
        super().stop()
        for place in self._places:
            if place.request is None:
                self._end_sequence(place, clock())
        self._loop.flush()

    @property
    def is_warm(self) -> bool:
        """Whether each place has had its first response."""
        return not self._waiting_for_first

    @property
    def is_over(self) -> bool:
        """Whether all of ``total`` requests have had their responses."""
        return self._total > 0 and self._left <= 0 and not self.in_flight
