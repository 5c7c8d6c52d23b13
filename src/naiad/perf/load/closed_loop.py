"""A closed loop: so many requests are in flight at any time, and each response is followed by the next request."""

from __future__ import annotations

from naiad.perf.load.load import Load, clock
from naiad.perf.load.source import RequestSource
from naiad.perf.measure.recorder import Recorder
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import PerfTarget, Place, Problem


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
        self._places = self._open_places(concurrency)

    def begin(self, now_ns: int) -> None:
        """Send the first request of each place."""
        super().begin(now_ns)
        self._waiting_for_first = set(self._places)
        for place in self._places:
            if self._left <= 0:
                break
            self._send(place, clock())
        self._loop.flush()

    def _send(self, place: Place, now_ns: int) -> None:
        self._left -= 1
        self.in_flight += 1
        self._start(place, now_ns, now_ns)

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note the end of a request, and send the next one."""
        self._note_end(place, now_ns, problem)
        if self._waiting_for_first:
            self._waiting_for_first.discard(place)
        if self.is_running and self._left > 0 and not self._loop.failure:
            self._left -= 1
            self._start(place, now_ns, now_ns)
        else:
            self.in_flight -= 1
            if not self.is_running:
                self._end_sequence(place, now_ns)

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
