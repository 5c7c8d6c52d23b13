"""Periodic concurrency: more requests join while the ones before them are still being answered."""

from __future__ import annotations

from naiad.perf.load.load import Load, clock
from naiad.perf.load.source import RequestSource
from naiad.perf.measure.recorder import Recorder
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import PerfTarget, Place, Problem


class PeriodicLoad(Load):
    """Sends ``start`` requests, then ``step`` more whenever each of the last ones has had so many responses.

    The load is over when ``end`` requests have been sent and all of them are complete.

    Args:
        period: responses of a request before the next requests start.
    """

    def __init__(
        self,
        loop: EpollLoop,
        target: PerfTarget,
        source: RequestSource,
        recorder: Recorder,
        start: int,
        end: int,
        step: int,
        period: int,
    ) -> None:
        super().__init__(loop, target, source, recorder)
        self._left = end
        self._step = step
        self._first = start
        self._period = period
        self._missing: dict[Place, int] = {}
        # All connections before the first request, so that no latency has the making of one in it.
        self._places = self._open_places(end)

    def begin(self, now_ns: int) -> None:
        """Send the first requests."""
        super().begin(now_ns)
        self._launch(self._first)
        self._loop.flush()

    def _launch(self, count: int) -> None:
        for _ in range(min(count, self._left)):
            place = self._places.pop()
            self._left -= 1
            self.in_flight += 1
            self._missing[place] = self._period
            now_ns = clock()
            self._start(place, now_ns, now_ns)

    def responded(self, place: Place, now_ns: int) -> None:
        """Count a response; the last one that the youngest requests need starts the next ones."""
        super().responded(place, now_ns)
        if place in self._missing:
            self._missing[place] -= 1
            if not self._missing[place]:
                del self._missing[place]
                self._launch_when_due()

    def _launch_when_due(self) -> None:
        if not self._missing and self.is_running and not self._loop.failure:
            self._launch(self._step)

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note the end of a request; one that ends early counts as if it had had all responses."""
        self.in_flight -= 1
        self._note_end(place, now_ns, problem)
        if self._missing.pop(place, None) is not None:
            self._launch_when_due()

    @property
    def is_over(self) -> bool:
        """Whether all requests are complete."""
        return self.is_running and not self.in_flight
