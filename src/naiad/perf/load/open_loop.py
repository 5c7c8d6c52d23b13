"""An open loop: requests are sent when a schedule says so, however long the responses take."""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Iterator
from typing import Final

from naiad.perf.load.load import NEVER_NS, PLACES_PER_CHANNEL, Load, clock
from naiad.perf.load.source import RequestSource
from naiad.perf.measure.recorder import Recorder
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import UNREACHED, ChannelOpener, PerfTarget, Place, Problem

FIRST_PLACES: Final = 16
MAX_PLACES: Final = 4096
"""The most requests in flight; what is due beyond them waits, and its latency counts from when it was due."""
LEAD_NS: Final = 2_000_000
"""Between the start and the first request."""
_BATCH: Final = 64


class OpenLoop(Load):
    """Sends requests on a schedule.

    A latency counts from the time at which its request was due. So what waits because all places are busy, or because
    this process did not run, is not hidden, and a server that stands still costs all the requests due meanwhile.

    Args:
        schedule: when each request is due, in ns after the start, in ascending order.
        first_places: how many connections are made before the start.
        max_places: the most requests in flight.
    """

    def __init__(
        self,
        loop: EpollLoop,
        target: ChannelOpener,
        source: RequestSource,
        recorder: Recorder,
        schedule: Iterator[int],
        first_places: int = FIRST_PLACES,
        max_places: int = MAX_PLACES,
    ) -> None:
        super().__init__(loop, target, source, recorder)
        self._schedule = schedule
        self._began_ns = 0
        self._due_ns = NEVER_NS
        self._backlog: deque[int] = deque()
        self._free = self._open_places(first_places, needs_all=False)
        self._places = len(self._free)
        self._max_places = min(max_places, _descriptors_left())

    def begin(self, now_ns: int) -> None:
        """Start the schedule a little later than now."""
        super().begin(now_ns)
        self._began_ns = now_ns + LEAD_NS
        self._advance()

    def _advance(self) -> None:
        offset = next(self._schedule, None)
        self._due_ns = NEVER_NS if offset is None else self._began_ns + offset

    def pump(self, now_ns: int) -> int:
        """Send what is due; returns when the next request is due."""
        if not self.is_running:
            return NEVER_NS
        sent = 0
        while self._due_ns <= now_ns:
            due_ns = self._due_ns
            self._advance()
            self._take_turn(due_ns)
            sent += 1
            if sent == _BATCH:
                # Responses are looked at as well when much is due.
                break
        if sent:
            self._loop.flush()
        return self._due_ns

    def _take_turn(self, due_ns: int) -> None:
        self.in_flight += 1
        if not self._free:
            self._grow()
        if self._free:
            self._send(self._free.pop(), due_ns, clock())
        else:
            self._backlog.append(due_ns)

    def _grow(self) -> None:
        """One more connection, as long as there may be more."""
        if self._places >= self._max_places:
            return
        channel = self._target.open(self._loop, self, PLACES_PER_CHANNEL)
        self._channels.append(channel)
        self._places += len(channel.places)
        self._free += channel.places

    def _send(self, place: Place, due_ns: int, now_ns: int) -> None:
        self.recorder.send_delays.append(now_ns - due_ns)
        self._start(place, due_ns, now_ns)

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note the end of a request; its place takes the one that has waited longest."""
        self.in_flight -= 1
        self._note_end(place, now_ns, problem)
        if problem is not None and problem[0] in UNREACHED:
            # The last one to be taken again: others have connections.
            self._free.insert(0, place)
        elif self._backlog and self.is_running and not self._loop.failure:
            self._send(place, self._backlog.popleft(), now_ns)
        else:
            self._free.append(place)

    @property
    def is_over(self) -> bool:
        """Whether the schedule has ended and all responses are there."""
        return self._due_ns == NEVER_NS and self.is_running and not self.in_flight

    def stop(self) -> None:
        """Send nothing more; what waits is forgotten."""
        super().stop()
        self.in_flight -= len(self._backlog)
        self._backlog.clear()


class SequenceOpenLoop(OpenLoop):
    """Sends the requests of sequences on a schedule: sequences take turns, and each has at most one request in flight.

    Args:
        sequences: how many are played at a time.
    """

    def __init__(
        self,
        loop: EpollLoop,
        target: PerfTarget,
        source: RequestSource,
        recorder: Recorder,
        schedule: Iterator[int],
        sequences: int,
    ) -> None:
        super().__init__(loop, target, source, recorder, schedule, sequences)
        self._order = list(self._free)
        self._turn = 0
        self._waiting: dict[Place, deque[int]] = {place: deque() for place in self._order}

    def _take_turn(self, due_ns: int) -> None:
        self.in_flight += 1
        place = self._order[self._turn]
        self._turn = (self._turn + 1) % len(self._order)
        if place.request is None and not self._waiting[place]:
            self._send(place, due_ns, clock())
        else:
            self._waiting[place].append(due_ns)

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note the end of a request; the next one of its sequence follows if it was due."""
        self.in_flight -= 1
        self._note_end(place, now_ns, problem)
        waiting = self._waiting[place]
        if waiting and self.is_running and not self._loop.failure:
            self._send(place, waiting.popleft(), now_ns)
        elif not self.is_running:
            self._end_sequence(place, now_ns)

    def stop(self) -> None:
        """Send nothing more but the ends of the sequences that are open."""
        super().stop()
        now_ns = clock()
        for place, waiting in self._waiting.items():
            self.in_flight -= len(waiting)
            waiting.clear()
            if place.request is None:
                self._end_sequence(place, now_ns)
        self._loop.flush()


def _descriptors_left() -> int:
    """How many connections this process may have, with some files to spare."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        wanted = MAX_PLACES + 256 if hard == resource.RLIM_INFINITY else min(hard, MAX_PLACES + 256)
        if wanted > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return max(soft - 128, FIRST_PLACES)
