"""A closed loop over requests that somebody else chooses one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.perf.load.load import Load, clock
from naiad.perf.measure.recorder import Recorder
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import ChannelOpener, Place, Problem


class IteratedRequests:
    """Requests of an iterator, whichever place they go to."""

    def __init__(self, requests: Iterator[Any]) -> None:
        self._requests = requests

    def next(self, place: Place) -> Any:
        """The next request, which is left in ``place.holder``; None when there is no more."""
        place.holder = next(self._requests, None)
        return place.holder

    def last(self, place: Place) -> Any | None:
        """Nothing is left open."""
        return None

    def sequence_of(self, place: Place) -> int | None:
        """Requests belong to no sequence."""
        return None


class IteratedLoop(Load):
    """Keeps so many requests in flight until there are no more."""

    def __init__(
        self, loop: EpollLoop, opener: ChannelOpener, requests: Iterator[Any], recorder: Recorder, in_flight: int
    ) -> None:
        super().__init__(loop, opener, IteratedRequests(requests), recorder)
        self._places = self._open_places(in_flight)

    @property
    def waiting(self) -> list[Any]:
        """The requests in flight."""
        return [place.holder for place in self._places if place.holder is not None]

    def begin(self, now_ns: int) -> None:
        """Send the first request of each place."""
        super().begin(now_ns)
        for place in self._places:
            self.in_flight += 1
            self._send_next(place, clock())
        self._loop.flush()

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note the end of a request, and send the next one."""
        self._note_end(place, now_ns, problem)
        self._send_next(place, now_ns)

    def _send_next(self, place: Place, now_ns: int) -> None:
        request = self._source.next(place) if self.is_running and not self._loop.failure else None
        if request is None:
            place.holder = None
            self.in_flight -= 1
            return
        self.recorder.sent += 1
        place.start(request, now_ns, now_ns)

    @property
    def is_over(self) -> bool:
        """Whether all requests have had their responses."""
        return self.is_running and not self.in_flight
