"""A channel of ``ModelStreamInfer``: each place has a stream of its own, on which its requests follow each other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from naiad.bounded_dict import BoundedDict
from naiad.perf.target.address import Address
from naiad.perf.target.grpc_calls import GrpcJudge
from naiad.perf.target.grpc_connection import PREFIX_BYTES, GrpcClientConnection, reset_text
from naiad.perf.target.grpc_status import problem_of
from naiad.perf.target.protocol import Place, Poller, Problem, ResponseListener
from naiad.perf.target.stream_response import StreamResponse, read_stream_response
from naiad.wire.http2 import frames

_CACHED_BYTES: Final = 512
_CACHED: Final = 64
_REFILL_BYTES: Final = 1 << 30
_CANCEL: Final = 8

clock = time.monotonic_ns


class StreamPlace(Place):
    """A stream of a connection with room for one request, whatever the number of its responses.

    Attributes:
        stream: its number; 0 when it has none yet.
        problem: what was wrong with a response of the present request.
    """

    __slots__ = ("_channel", "consumed", "problem", "received", "stream")

    def __init__(self, channel: GrpcStreamsChannel) -> None:
        super().__init__()
        self._channel = channel
        self.stream = 0
        self.received = b""
        self.consumed = 0
        self.problem: Problem | None = None

    def start(self, request: Any, began_ns: int, now_ns: int) -> None:
        """Send a request with the other ones of this turn."""
        self.began_ns = began_ns
        self.last_ns = 0
        self.problem = None
        self.request = request
        self._channel.send(self)


class GrpcStreamsChannel(GrpcClientConnection):
    """A connection of streams.

    Args:
        waits_for_final: whether a request ends with the response that is marked final (decoupled models); otherwise
            with its first response.
    """

    def __init__(
        self,
        address: Address,
        poller: Poller,
        listener: ResponseListener,
        headers: Sequence[tuple[str, str]],
        places: int,
        judge: GrpcJudge,
        *,
        waits_for_final: bool,
    ) -> None:
        self._held: list[StreamPlace] = []
        super().__init__(address, poller, listener, headers)
        self.places = tuple(StreamPlace(self) for _ in range(places))
        self._judge = judge
        self._waits_for_final = waits_for_final
        self._responses: dict[bytes, StreamResponse] = BoundedDict(_CACHED)

    def _begin(self) -> None:
        super()._begin()
        for place in self.places:
            if isinstance(place, StreamPlace):
                place.stream = place.consumed = 0
                place.received = b""

    def send(self, place: StreamPlace) -> None:
        """Send the request of a place."""
        if not self.is_open or self._is_leaving or (not place.stream and len(self._streams) >= self._max_streams):
            self._held.append(place)
            self._replace_connection()
            return
        head = b"" if place.stream else self._open_stream(place)
        self._started.append(place.stream)
        self._put(place.stream, head, place.request.message, ends_stream=False)

    def _replace_connection(self) -> None:
        """Connect again when the connection is gone, or is ending and all requests wait for the next one."""
        in_flight = sum(place.request is not None for place in self.places)
        if self._socket is None or (self._is_leaving and in_flight == len(self._held)):
            self.connect()

    def _retry_above(self, last_stream: int) -> None:
        for stream in [stream for stream in self._streams if stream > last_stream]:
            place = self._streams[stream]
            if type(place) is StreamPlace:
                self._forget(place)
                if place.request is not None:
                    self._held.append(place)
        if self._held:
            self._replace_connection()

    def _open_stream(self, place: StreamPlace) -> bytes:
        place.stream, self._next_stream = self._next_stream, self._next_stream + 2
        place.received = b""
        place.consumed = 0
        self._streams[place.stream] = place
        return frames.encode_frame(frames.HEADERS, frames.END_HEADERS, place.stream, self._next_block())

    def _ready(self) -> None:
        for place in self._take_held():
            if place.request is not None:
                self.send(place)

    def _take_held(self) -> Sequence[StreamPlace]:
        held, self._held = self._held, []
        return held

    def _data(self, stream: int, flags: int, payload: bytes, now: int) -> None:
        place = self._streams.get(stream)
        if type(place) is not StreamPlace:
            return
        place.consumed += len(payload)
        data = place.received + payload if place.received else payload
        at, end = 0, len(data)
        while end - at >= PREFIX_BYTES:
            stop = at + PREFIX_BYTES + int.from_bytes(data[at + 1 : at + PREFIX_BYTES], "big")
            if stop > end:
                break
            self._message(place, data[at + PREFIX_BYTES : stop], now)
            if place.stream != stream:
                return
            at = stop
        place.received = data[at:]
        if place.consumed > _REFILL_BYTES:
            self._queue(frames.encode_window_update(stream, place.consumed))
            place.consumed = 0

    def _message(self, place: StreamPlace, message: bytes, now: int) -> None:
        request = place.request
        if request is None:
            return
        found = self._responses.get(message)
        if found is None:
            try:
                found = read_stream_response(message)
            except (ValueError, IndexError) as error:
                found = StreamResponse(f"it cannot be read: {error}", False, True, b"")
            if len(message) <= _CACHED_BYTES:
                self._responses[message] = found
        if found.error:
            place.problem = ("gRPC response", found.error)
        elif not found.is_empty:
            if request.keeps_body and place.problem is None:
                place.problem = self._judge(request, found.infer_response)
            self._listener.responded(place, now)
            place.last_ns = now
        if found.is_final or not self._waits_for_final or found.error:
            self._over(place, now, is_orderly=found.is_final or not self._waits_for_final)

    def _over(self, place: StreamPlace, now: int, *, is_orderly: bool) -> None:
        self._losses = 0
        if not is_orderly:
            # More responses to the failed request may follow, so the next one gets another stream.
            self._queue(frames.encode_reset(place.stream, _CANCEL))
            self._forget(place)
        place.request = None
        self._times.receive_ns += now - self._since
        self._listener.completed(place, place.last_ns or now, place.problem)

    def _forget(self, place: StreamPlace) -> None:
        self._streams.pop(place.stream, None)
        self._stream_windows.pop(place.stream, None)
        place.stream = 0
        place.received = b""

    def _fields(self, stream: int, block: bytes, now: int, *, ends: bool) -> None:
        fields = self._blocks.fields(block)
        if ends:
            self._ended(stream, now, problem_of(fields))

    def _reset(self, stream: int, code: int, now: int) -> None:
        self._ended(stream, now, ("connection lost", reset_text(code)))

    def _ended(self, stream: int, now: int, problem: Problem) -> None:
        place = self._streams.get(stream)
        if type(place) is not StreamPlace:
            return
        self._forget(place)
        if place.request is None:
            return
        place.request = None
        if problem[0] == "gRPC OK":
            problem = ("bad response", "the stream ended before the response")
        self._listener.completed(place, now, problem)
