"""What all kinds of load have in common: channels, the requests on them, and the notes of what came of it."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Final, Protocol

from naiad.perf.load.source import RequestSource
from naiad.perf.measure.processor import ProcessorTime, processor_time
from naiad.perf.measure.recorder import Recorder
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import ChannelOpener, ClientChannel, EncodedRequest, Place, Problem, TargetError
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
    def waits(self) -> bool:
        """Whether a response is due, as far as is known."""
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
        self._refused: dict[ClientChannel, str] = {}
        self._is_opening = False
        # Looked up once, since it is called for every request.
        self._note = recorder.latencies.append
        self._sent: dict[Place, tuple[EncodedRequest, int | None]] = {}

    def _open_places(self, count: int, *, needs_all: bool = True) -> list[Place]:
        """Connect so many places.

        Args:
            needs_all: whether the load cannot be made with fewer connections.

        Raises:
            TargetError: the server does not take the connections.
        """
        places: list[Place] = []
        self._is_opening = True
        while len(places) < count:
            channel = self._target.open(self._loop, self, min(PLACES_PER_CHANNEL, count - len(places)))
            self._channels.append(channel)
            places += channel.places
        what = f"the server of {count} requests in flight"
        wait_open(self._loop, self._channels, what, self._refused)
        self._is_opening = False
        opened = len(self._channels) - len(self._refused)
        if self._refused and (needs_all or not opened):
            cause = next(iter(self._refused.values()))
            raise TargetError(
                f"{what} took {opened} of {len(self._channels)} connections: {cause}" if opened else cause
            )
        return places[:count]

    def unreached(self, channel: ClientChannel, cause: str) -> None:
        """A connection cannot be made: the end of the load, unless another one is there."""
        if self._is_opening:
            self._refused[channel] = cause
        elif not any(other.is_reached for other in self._channels):
            self._loop.fail(cause)

    def _start(self, place: Place, began_ns: int, now_ns: int) -> None:
        """Send the next request of a place; its latency counts from ``began_ns``."""
        recorder = self.recorder
        recorder.sent += 1
        request = self._source.next(place)
        if recorder.keeper is not None:
            self._sent[place] = request, self._source.sequence_of(place)
            place.response_times, place.responses = [], []
        place.start(request, began_ns, now_ns)

    def _note_end(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note how a request ended."""
        if problem is None:
            self._note(now_ns - place.began_ns)
        else:
            self.recorder.errors[problem] += 1
        keeper = self.recorder.keeper
        if keeper is not None and place in self._sent:
            request, sequence = self._sent.pop(place)
            times = place.response_times or None
            responses = place.responses if times else [request.last_response]
            keeper.keep(place.began_ns, now_ns, request.index, times, sequence, responses or (), is_success=not problem)

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
        if place.response_times is not None and place.responses is not None:
            place.response_times.append(now_ns)
            place.responses.append(place.request.last_response)

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
    def waits(self) -> bool:
        """Whether a response is due."""
        return self.in_flight > 0

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
