"""The sending half of an HTTP/2 connection: windows, frames, and data that wait for a window.

Data are not copied to be cut into frames: a frame's payload is a view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from naiad.wire.http2.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAX_WINDOW,
    Http2ConnectionError,
    Http2ErrorCode,
    Http2StreamError,
    encode_frame,
    encode_reset,
    frame_head,
)
from naiad.wire.http2.stream import HEADERS_SENT, LOCAL_CLOSED, REMOTE_CLOSED, STALLED, Stream

# The most bytes of a stream before the next stream has its turn.
_SHARE_BYTES = 1 << 18
_STALE_STREAMS = 64
_EMPTY_TABLE = b"\x20"
_NOTHING = memoryview(b"")


class OutboundQueue:
    """The outgoing data of one connection. The owner writes ``out`` to the socket, in order.

    Attributes:
        out: encoded pieces that are due; views among them must not change until they are written.
        streams: the open ones, by id.
        window: the bytes that the peer accepts on this connection now.
        initial_window: the window of a new stream; a stream may send this plus its ``credit``.
        frame_bytes: the largest frame that the peer accepts.
        unfinished: the streams whose response ended before their request was complete.
        waiting: streams with data to send, round robin; a stream whose own window is used up returns when it grows.
        waiting_bytes: the unsent bytes of all streams.
        pumped: the number of frames that had to wait before they were sent, as a sign of life.
        plain: header blocks may be sent unchanged. If not, the peer has shrunk its header table, and the next block
            must declare that this side uses none of it (RFC 7541, section 4.2).
        inside: the connection is processing received bytes; its caller looks at ``out`` afterwards.
        wake: called when ``out`` or ``waiting`` has data and the connection is not processing received bytes.
    """

    __slots__ = (
        "frame_bytes",
        "initial_window",
        "inside",
        "out",
        "plain",
        "pumped",
        "streams",
        "unfinished",
        "waiting",
        "waiting_bytes",
        "wake",
        "window",
    )

    def __init__(self, wake: Callable[[], None]) -> None:
        self.out: list[Any] = []
        self.streams: dict[int, Stream] = {}
        self.window = DEFAULT_WINDOW
        self.initial_window = DEFAULT_WINDOW
        self.frame_bytes = DEFAULT_FRAME_BYTES
        self.waiting: deque[Stream] = deque()
        self.waiting_bytes = 0
        self.pumped = 0
        self.plain = True
        self.inside = False
        self.unfinished: set[int] = set()
        self.wake = wake

    def write(self, frames: bytes) -> None:
        """Send encoded frames that need no window."""
        self.out.append(frames)
        if not self.inside:
            self.wake()

    def send_headers(self, stream: Stream, block: bytes) -> None:
        """Begin the response on a stream."""
        stream.flags |= HEADERS_SENT
        self.write(self._headers_frame(stream, END_HEADERS, block))

    def _headers_frame(self, stream: Stream, flags: int, block: bytes) -> bytes:
        if not self.plain:
            self.plain = True
            block = _EMPTY_TABLE + block
        return encode_frame(HEADERS, flags, stream.id, block)

    def send_data(self, stream: Stream, parts: Sequence[Any], size: int) -> None:
        """Send ``size`` bytes of data, the flat buffers ``parts``, as soon as there is room for them."""
        queue = stream.queue
        if queue is None:
            queue = stream.queue = deque()
        # With data it is in ``waiting`` already, or stalled until its window grows.
        if not queue:
            self.waiting.append(stream)
        # A queue of empty parts would never end, since no frame takes them.
        queue += [part for part in map(_flat, parts) if part.nbytes]
        stream.queued_bytes += size
        self.waiting_bytes += size
        if not self.inside:
            self.wake()

    def end(self, stream: Stream, trailers: bytes) -> None:
        """End the response on a stream with a last header block, after its data."""
        stream.flags |= LOCAL_CLOSED
        if stream.queue:
            stream.trailers = trailers
        else:
            self._close(stream, trailers)

    def _close(self, stream: Stream, trailers: bytes) -> None:
        frame = self._headers_frame(stream, END_HEADERS | END_STREAM, trailers)
        if stream.flags & REMOTE_CLOSED:
            self.streams.pop(stream.id, None)
        else:
            # The rest of the request may come soon, and some clients would take a reset for a failure.
            self.unfinished.add(stream.id)
        self.write(frame)

    def stop_unfinished(self) -> None:
        """Have the peer stop sending the requests whose response ended before they were complete."""
        for stream_id in self.unfinished:
            self.streams.pop(stream_id, None)
            self.closed_here(stream_id)
            # No error: RFC 9113, section 8.1, has this code for a response that did not need the whole request.
            self.write(encode_reset(stream_id, Http2ErrorCode.NO_ERROR))
        self.unfinished.clear()

    def closed_here(self, stream_id: int) -> None:
        """This side closed a stream; the peer may not know yet."""

    def drop(self, stream: Stream) -> None:
        """Drop the unsent data of a stream."""
        if stream.queue:
            self.waiting_bytes -= stream.queued_bytes
            stream.queued_bytes = 0
            stream.queue.clear()
            # Streams without data leave ``waiting`` in ``pump``. Only a peer that resets many makes it worth a pass.
            if len(self.waiting) > 2 * len(self.streams) + _STALE_STREAMS:
                self.waiting = deque(other for other in self.waiting if other.queue)

    def pump(self, limit: int) -> bool:
        """Put up to about ``limit`` bytes of waiting data into ``out``, in fair shares; False when there was nothing
        that may be sent.
        """
        waiting = self.waiting
        sent = 0
        while waiting and sent < limit and self.window > 0:
            stream = waiting.popleft()
            if not stream.queue:
                # It was dropped meanwhile.
                continue
            # Alone it needs no turns.
            sent += self._send_share(stream, _SHARE_BYTES if waiting else limit - sent)
            if not stream.queue:
                self._sent_all(stream)
            elif self.initial_window + stream.credit <= 0:
                # It takes no turns until its window grows.
                stream.flags |= STALLED
            else:
                waiting.append(stream)
        return sent > 0

    def _sent_all(self, stream: Stream) -> None:
        if stream.trailers is not None:
            trailers, stream.trailers = stream.trailers, None
            self._close(stream, trailers)
        else:
            stream.drained()

    def _send_share(self, stream: Stream, most: int) -> int:
        """Put one stream's next frames into ``out``, of ``most`` bytes of data at the most; the bytes in them."""
        queue, out = stream.queue, self.out
        if not queue:
            return 0
        # A window may be below zero, by SETTINGS.
        total = left = max(0, min(stream.queued_bytes, self.window, self.initial_window + stream.credit, most))
        part, position, limit = queue[0], 0, self.frame_bytes
        full_head = frame_head.pack(limit << 8 | DATA, 0, stream.id)
        while left > 0:
            if left > limit < len(part) - position:
                # A large tensor: its full frames, all but the last.
                begin, position = position, position + (min(left, len(part) - position) - 1) // limit * limit
                data = [part[at : at + limit] for at in range(begin, position, limit)]
                frames: list[Any] = [full_head] * (2 * len(data))
                frames[1::2] = data
                out += frames
                left -= position - begin
                self.pumped += len(data)
            size = min(left, limit)
            left -= size
            self.pumped += 1
            # Never with END_STREAM, because a response of gRPC ends with trailers.
            out.append(frame_head.pack(size << 8 | DATA, 0, stream.id))
            # A frame may hold the end of one part and the beginning of the next.
            while size:
                have = len(part) - position
                if have > size:
                    out.append(part[position : position + size])
                    position += size
                    break
                out.append(part[position:] if position else part)
                size -= have
                position = 0
                queue.popleft()
                if queue:
                    part = queue[0]
        if position:
            queue[0] = part[position:]
        self.window -= total
        stream.credit -= total
        stream.queued_bytes -= total
        self.waiting_bytes -= total
        return total

    def grow_window(self, increment: int) -> None:
        """The peer takes more on this connection."""
        if not increment:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0 for the connection")
        self.window += increment
        if self.window > MAX_WINDOW:
            raise Http2ConnectionError(Http2ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is above 2^31-1")

    def set_initial_window(self, size: int) -> None:
        """The peer changed the initial window of every stream, open streams included."""
        if size == self.initial_window:
            return
        # Checked for all streams before any changes (6.9.2).
        if any(size + stream.credit > MAX_WINDOW for stream in self.streams.values()):
            raise Http2ConnectionError(Http2ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is above 2^31-1")
        self.initial_window = size
        for stream in self.streams.values():
            if stream.flags & STALLED and size + stream.credit > 0:
                self._resume(stream)

    def grow_stream_window(self, stream: Stream, increment: int) -> None:
        """The peer takes more on one stream."""
        if not increment:
            raise Http2StreamError(Http2ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        stream.credit += increment
        if self.initial_window + stream.credit > MAX_WINDOW:
            raise Http2StreamError(Http2ErrorCode.FLOW_CONTROL_ERROR, "the stream's window is above 2^31-1")
        if stream.flags & STALLED and self.initial_window + stream.credit > 0:
            self._resume(stream)

    def _resume(self, stream: Stream) -> None:
        stream.flags &= ~STALLED
        self.waiting.append(stream)


def _flat(part: Any) -> memoryview:
    view = memoryview(part)
    # A view with a zero in its shape cannot be cast.
    if not view.nbytes:
        return _NOTHING
    return view if view.ndim == 1 and view.itemsize == 1 else view.cast("B")
