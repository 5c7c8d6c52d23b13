"""What all kinds of load have in common: channels, the requests on them, and the notes of what came of it."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Final, Protocol

from naiad.perf.load.source import RequestSource
from naiad.perf.measure.processor import ProcessorTime, processor_time
from naiad.perf.measure.recorder import Recorder
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import ChannelOpener, ClientChannel, Place, Problem
from naiad.perf.target.question import wait_open

NEVER_NS: Final = 1 << 62
PLACES_PER_CHANNEL: Final = 16
"""How many calls share a connection where the protocol lets them."""

clock = time.monotonic_ns


class MeasuredLoad(Protocol):
    """A load as its windows see it, whoever makes it.

    Attributes:
        processes: how many make it.
    """

    processes: int

    @property
    def recorder(self) -> Recorder:
        """What came of the requests."""
        ...

    @property
    def in_flight(self) -> int:
        """Requests that are not over."""
        ...

    @property
    def is_warm(self) -> bool:
        """Whether windows may begin."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether a load that has an end has reached it."""
        ...

    def begin(self, now_ns: int) -> None:
        """Start the load."""
        ...

    def pump(self, now_ns: int) -> int:
        """Send what is due; returns when to be called again, on the monotonic clock."""
        ...

    def stop(self) -> None:
        """Send nothing more; what is in flight goes on."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...

    def processor_time(self) -> ProcessorTime:
        """The processor time of the generator so far."""
        ...

    def take_delays(self) -> list[int]:
        """The delays of the turns since the last call, in ns."""
        ...


class Load:
    """Sends requests, and hears of their responses.

    Attributes:
        recorder: what came of them.
        is_running: whether new requests are sent.
        in_flight: requests that are not over.
    """

    processes = 1

    def __init__(self, loop: EpollLoop, target: ChannelOpener, source: RequestSource, recorder: Recorder) -> None:
        self.recorder = recorder
        self.times = recorder.times
        self.is_running = False
        self.in_flight = 0
        self._loop = loop
        self._target = target
        self._source = source
        self._channels: list[ClientChannel] = []
        self._note = recorder.latencies.append
        self._sent: dict[Place, tuple[int, int | None]] = {}

    def _open_places(self, count: int) -> list[Place]:
        """Connect so many places.

        Raises:
            TargetError: the server does not take the connections.
        """
        places: list[Place] = []
        while len(places) < count:
            channel = self._target.open(self._loop, self, min(PLACES_PER_CHANNEL, count - len(places)))
            self._channels.append(channel)
            places += channel.places
        wait_open(self._loop, self._channels, f"the server of {count} requests in flight")
        return places[:count]

    def _start(self, place: Place, began_ns: int, now_ns: int) -> None:
        """Send the next request of a place; its latency counts from ``began_ns``."""
        recorder = self.recorder
        recorder.sent += 1
        request = self._source.next(place)
        if recorder.keeper is not None:
            self._sent[place] = request.index, self._source.sequence_of(place)
            place.response_times = []
        place.start(request, began_ns, now_ns)

    def _note_end(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note how a request ended."""
        if problem is None:
            self._note(now_ns - place.began_ns)
        else:
            self.recorder.errors[problem] += 1
        keeper = self.recorder.keeper
        if keeper is not None and place in self._sent:
            step, sequence = self._sent.pop(place)
            times = place.response_times or None
            keeper.keep(place.began_ns, now_ns, step, times, sequence, is_success=problem is None)

    def _end_sequence(self, place: Place, now_ns: int) -> None:
        """Leave no sequence of a place open on the server."""
        request = None if self._loop.failure else self._source.last(place)
        if request is not None:
            self.in_flight += 1
            place.start(request, now_ns, now_ns)

    def responded(self, place: Place, now_ns: int) -> None:
        """Note a response of a stream."""
        recorder = self.recorder
        recorder.responses += 1
        if place.last_ns:
            recorder.between_responses.append(now_ns - place.last_ns)
        else:
            recorder.first_responses.append(now_ns - place.began_ns)
        if place.response_times is not None:
            place.response_times.append(now_ns)

    def begin(self, now_ns: int) -> None:
        """Start the load."""
        self.is_running = True

    def pump(self, now_ns: int) -> int:
        """Send what is due; returns when to be called again, on the monotonic clock."""
        return NEVER_NS

    @property
    def is_over(self) -> bool:
        """Whether a load that has an end has reached it."""
        return False

    @property
    def is_warm(self) -> bool:
        """Whether windows may begin."""
        return True

    def stop(self) -> None:
        """Send nothing more; what is in flight goes on."""
        self.is_running = False

    def close(self) -> None:
        """Close all connections."""
        self.is_running = False
        for channel in self._channels:
            channel.close()

    def processor_time(self) -> ProcessorTime:
        """The processor time of this process so far."""
        return processor_time()

    def take_delays(self) -> list[int]:
        """The delays of the turns since the last call, in ns."""
        return self._loop.take_delays()

    @abstractmethod
    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note the end of a request."""
