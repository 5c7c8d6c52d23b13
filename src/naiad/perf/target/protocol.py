"""What the load generator knows of a target: channels with places for requests in flight, and who hears of responses.

Nothing here knows a protocol. A new kind of service is a ``PerfTarget`` and a ``ClientChannel`` of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from naiad.perf.results import ServerParts
from naiad.perf.steps import ModelDescription, Step, TensorValue
from naiad.perf.target.region_calls import RegionCalls
from naiad.perf.transfer import TransferTimes
from naiad.shared_memory.region import RegionRef

Problem = tuple[str, str]
"""What kind of failure, such as ``HTTP 400``, and its cause in words."""


CANNOT_CONNECT: Final = "cannot connect"
CONNECTION_LOST: Final = "connection lost"
UNREACHED: Final = frozenset({CANNOT_CONNECT, CONNECTION_LOST})
"""The kinds of failures of requests that no server has answered."""


class TargetError(Exception):
    """The server cannot be measured: the text says why, in one sentence, with the address."""


class EncodedRequest(Protocol):
    """A request whose bytes are ready.

    Attributes:
        index: which of the steps it was made from, counted from 0.
        size: its bytes.
        last_response: as ``PerfTarget.outputs_of`` takes it, where the settings ask for that.
    """

    index: int
    size: int

    @property
    def last_response(self) -> Hashable: ...


class EncodedStep(Protocol):
    """A step whose bytes are ready, by itself or in any place of a sequence."""

    @property
    def plain(self) -> EncodedRequest: ...

    def in_sequence(self, sequence: int, *, is_first: bool, is_last: bool) -> EncodedRequest:
        """The step as a request of a sequence."""
        ...


@runtime_checkable
class TurnStep(Protocol):
    """A step that is one turn of a conversation.

    Attributes:
        delay_ms: how long the conversation rests once the turn has its response.
    """

    delay_ms: float

    def in_session(self, history: list[Any]) -> EncodedRequest:
        """The turn behind everything that was said before; ``history`` gets what the turn itself says."""
        ...

    def take_reply(self, request: Any, history: list[Any]) -> Problem | None:
        """Read the response to a request of ``in_session`` into ``history``; gives what is wrong with it."""
        ...


class Place:
    """Room for one request in flight; used again and again.

    Attributes:
        began_ns: from when the latency of the present request counts, on the monotonic clock.
        last_ns: when its last response came; 0 before the first one. Streams only.
        holder: whatever the load keeps here, such as the sequence that it plays.
        response_times: when the responses of the present request came, on the monotonic clock; None unless somebody
            wants to know.
        responses: what they held, as ``EncodedRequest.last_response``; None unless somebody wants to know.
    """

    __slots__ = ("began_ns", "holder", "last_ns", "request", "response_times", "responses")

    def __init__(self) -> None:
        self.began_ns = 0
        self.last_ns = 0
        self.request: Any = None
        self.holder: Any = None
        self.response_times: list[int] | None = None
        self.responses: list[Hashable] | None = None

    def start(self, request: Any, began_ns: int, now_ns: int) -> None:
        """Send a request; its latency counts from ``began_ns``."""
        raise NotImplementedError


class ResponseListener(Protocol):
    """Hears of responses.

    Attributes:
        times: what its channels spend on sending and receiving.
    """

    times: TransferTimes

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """The request of a place is over. The place is free: another request may be started at once."""
        ...

    def responded(self, place: Place, now_ns: int) -> None:
        """A response of a stream came, the last one included; ``place.last_ns`` holds the time of the one before."""
        ...

    def unreached(self, channel: ClientChannel, cause: str) -> None:
        """A connection could not be made, or the server closes all of them before it responds.

        The requests on it fail next. One that is started there later connects again.
        """
        ...


class ClientChannel(Protocol):
    """A connection.

    Attributes:
        places: how many requests may be in flight on it at a time.
        is_open: whether requests can be sent.
        is_reached: whether they can be sent, and no connection was lost since the last response.
    """

    places: Sequence[Place]
    is_open: bool

    @property
    def is_reached(self) -> bool: ...

    def fileno(self) -> int: ...

    def connect(self) -> None:
        """Begin to connect, without waiting."""
        ...

    def receive(self) -> None:
        """Take what has arrived; called when an open channel is readable and nothing else."""
        ...

    def handle(self, mask: int) -> None:
        """Take any other event of the socket."""
        ...

    def flush(self) -> None:
        """Send what ``start`` has left for the end of a turn."""
        ...

    def close(self) -> None: ...


class Poller(Protocol):
    """The loop as channels see it."""

    def add(self, channel: ClientChannel, *, writes: bool) -> None:
        """Watch the socket of a channel."""
        ...

    def watch_writes(self, channel: ClientChannel, *, writes: bool) -> None:
        """Say whether room to send is an event as well."""
        ...

    def remove(self, descriptor: int) -> None:
        """Watch a socket no longer."""
        ...

    def flush_later(self, channel: ClientChannel) -> None:
        """Call ``flush`` of the channel before the loop waits again."""
        ...

    def fail(self, cause: str) -> None:
        """Stop the measurement: the target is gone."""
        ...


class ChannelOpener(Protocol):
    """Where channels lead to."""

    def open(self, poller: Poller, listener: ResponseListener, places: int) -> ClientChannel:
        """A new channel that begins to connect, with at most ``places`` places."""
        ...


class PerfTarget(Protocol):
    """A service.

    Attributes:
        protocol: how its times are named: http or grpc.
        is_streaming: whether a request may have several responses.
        endpoint: where the server is, as ``host:port``.
    """

    @property
    def endpoint(self) -> str: ...

    protocol: str
    is_streaming: bool

    def describe(self) -> ModelDescription:
        """Ask the server for the model; also decides on which address it is reached.

        Raises:
            TargetError: the server is not reached, or has no such model.
        """
        ...

    def change_trace(self, settings: Mapping[str, str]) -> None:
        """Have the server trace the model, by the names and values of its trace settings.

        Raises:
            TargetError: it does not.
        """
        ...

    def encode(self, step: Step, index: int) -> EncodedStep:
        """The bytes of a step.

        Raises:
            TargetError: the protocol cannot carry it.
        """
        ...

    def outputs_of(self, response: Any) -> Mapping[str, TensorValue]:
        """The outputs of a response by name, from ``EncodedRequest.last_response``; empty where the service names none.

        Raises:
            ValueError, LookupError, TypeError: it cannot be read.
        """
        ...

    def place_tensors(self, outputs: Mapping[str, RegionRef]) -> RegionCalls:
        """Have outputs written to regions of shared memory in all requests that are encoded from now on.

        Returns:
            The calls that register regions.

        Raises:
            TargetError: the service has no shared memory.
        """
        ...

    def open(self, poller: Poller, listener: ResponseListener, places: int) -> ClientChannel:
        """A new channel that begins to connect, with at most ``places`` places."""
        ...

    def statistics_request(self) -> Any:
        """The request for the server's counts; None for a service without any. Goes over ``open_side``."""
        ...

    def read_statistics(self, body: bytes) -> ServerParts | None:
        """The counts since the start of the server, from the body of the response."""
        ...

    def open_side(self, poller: Poller, listener: ResponseListener) -> ClientChannel:
        """A channel with one place for ``statistics_request``; responses are left in ``place.request.body``."""
        ...
