"""A channel of unary gRPC calls: many in flight on one connection."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from naiad.perf.target.address import Address
from naiad.perf.target.grpc_connection import PREFIX_BYTES, GrpcClientConnection, reset_text
from naiad.perf.target.grpc_status import OK_STATUS, problem_of
from naiad.perf.target.protocol import Place, Poller, Problem, ResponseListener
from naiad.wire.http2 import frames

GrpcJudge = Callable[[Any, bytes], Problem | None]
"""Says what is wrong with the whole message of a response."""
_MAX_STREAM: Final = frames.MAX_STREAM_ID - 2

clock = time.monotonic_ns


class CallPlace(Place):
    """Room for one call on a connection.

    Attributes:
        message: the response as far as it has arrived, behind its prefix; None when nobody looks at it.
        data_frames: whether any of it has arrived.
    """

    __slots__ = ("_channel", "has_data", "message")

    def __init__(self, channel: GrpcCallsChannel) -> None:
        super().__init__()
        self._channel = channel
        self.message: bytearray | None = None
        self.has_data = False

    def start(self, request: Any, began_ns: int, now_ns: int) -> None:
        """Send a request with the other ones of this turn."""
        self.began_ns = began_ns
        self.request = request
        self._channel.call(self)


class GrpcCallsChannel(GrpcClientConnection):
    """A connection on which each place has its call, on a new stream each time."""

    def __init__(
        self,
        address: Address,
        poller: Poller,
        listener: ResponseListener,
        headers: Sequence[tuple[str, str]],
        places: int,
        judge: GrpcJudge,
    ) -> None:
        self._held: deque[CallPlace] = deque()
        super().__init__(address, poller, listener, headers)
        self.places = tuple(CallPlace(self) for _ in range(places))
        self._judge = judge

    def call(self, place: CallPlace) -> None:
        """Begin the call of a place."""
        if not self.is_open or self._is_leaving or len(self._streams) >= self._max_streams:
            self._keep_back(place)
            return
        request = place.request
        stream = self._next_stream
        self._next_stream = stream + 2
        if stream > _MAX_STREAM:
            self._is_leaving = True
        self._streams[stream] = place
        self._started.append(stream)
        block = (self._first_block and self._next_block()) or self._block
        message = request.message
        size = len(message)
        if size <= self._frame_bytes and size <= self._window and size <= self._initial_window and not self._waiting:
            self._window -= size
            name = stream.to_bytes(4, "big")
            out = self._out
            out += (
                frames.frame_head.pack(len(block) << 8 | frames.HEADERS, frames.END_HEADERS, stream),
                block,
                request.data_head,
                name,
                message,
            )
            if not self._is_due_to_flush:
                self._is_due_to_flush = True
                self._poller.flush_later(self)
            return
        head = frames.encode_frame(frames.HEADERS, frames.END_HEADERS, stream, block)
        self._put(stream, head, message, ends_stream=True)

    def _keep_back(self, place: CallPlace) -> None:
        """Keep a call until the connection can take it."""
        self._held.append(place)
        if not self._streams and (self._is_leaving or self._socket is None):
            self.connect()

    def _retry_above(self, last_stream: int) -> None:
        for stream in [stream for stream in self._streams if stream > last_stream]:
            place = self._streams.pop(stream)
            if type(place) is CallPlace:
                self._held.append(place)
        if self._held and not self._streams:
            self.connect()

    def _ready(self) -> None:
        for place in self._take_held():
            self.call(place)

    def _take_held(self) -> Sequence[CallPlace]:
        held, self._held = self._held, deque()
        return tuple(held)

    def _data(self, stream: int, flags: int, payload: bytes, now: int) -> None:
        place = self._streams.get(stream)
        if type(place) is not CallPlace:
            return
        if place.request.keeps_body:
            if place.message is None:
                place.message = bytearray()
            place.message += payload
        place.has_data = True
        if flags & frames.END_STREAM:
            self._end(stream, now, ("bad response", "the call ended without a status"))

    def _fields(self, stream: int, block: bytes, now: int, *, ends: bool) -> None:
        fields = self._blocks.fields(block)
        if not ends:
            return
        if fields.get("grpc-status") == OK_STATUS:
            self._end(stream, now, None)
        else:
            self._end(stream, now, problem_of(fields))

    def _reset(self, stream: int, code: int, now: int) -> None:
        self._end(stream, now, ("connection lost", reset_text(code)))

    def _end(self, stream: int, now: int, problem: Problem | None) -> None:
        place = self._streams.pop(stream, None)
        if type(place) is not CallPlace:
            return
        self._losses = 0
        if self._stream_windows:
            self._stream_windows.pop(stream, None)
        request, place.request = place.request, None
        if problem is None:
            if not place.has_data:
                problem = ("bad response", "the call ended with OK but without a message")
            elif place.message is not None:
                problem = self._judge(request, bytes(place.message[PREFIX_BYTES:]))
        place.message = None
        place.has_data = False
        self._times.receive_ns += now - self._since
        self._listener.completed(place, now, problem)
        if self._held:
            self._serve_held()

    def _serve_held(self) -> None:
        if self._is_leaving:
            if not self._streams:
                self.connect()
        elif self.is_open:
            self.call(self._held.popleft())
