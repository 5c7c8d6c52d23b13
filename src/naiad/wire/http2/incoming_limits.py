"""What a peer may send on an HTTP/2 connection: the windows for its data, and new streams.

Source: RFC 9113, sections 5.1.2 and 6.9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from naiad.wire.http2.control import ConnectionControl
from naiad.wire.http2.frames import Http2ErrorCode, encode_window_update
from naiad.wire.http2.stream import BUSY, LOCAL_CLOSED, PAUSED, Stream

STREAM_WINDOW: Final = 1 << 23
CONNECTION_WINDOW: Final = 1 << 26
MAX_WAITING_BYTES: Final = 1 << 28
"""The most response data that may wait for a peer. Beyond it the peer is granted no more data, and its new calls are
refused while it reads nothing: requests would turn into an endless backlog of responses."""
_OVERLOADED: Final = -1


class IncomingLimits(ConnectionControl):
    """Adds the windows for the data of requests, and the bound on open streams."""

    __slots__ = ("_max_streams", "_room", "_unacknowledged")

    def __init__(self, wake: Callable[[], None], max_streams: int) -> None:
        super().__init__(wake)
        # ``_room``: the most open streams; 0 once closed to new ones, ``_OVERLOADED`` while new ones are refused.
        self._max_streams = self._room = max_streams
        self._unacknowledged = 0

    # Windows

    def _count(self, stream: Stream, size: int, useful: int = 1) -> bool:
        """Count data of an unfinished request and let the peer send more of it; False when it exceeded its window.

        ``useful``: 0 for padding alone, and for nothing at all.
        """
        stream.received += size
        self.data_frames += useful
        open_window = STREAM_WINDOW + stream.granted - stream.received
        if open_window < 0:
            self.reset(stream.id, Http2ErrorCode.FLOW_CONTROL_ERROR)
            return False
        if open_window <= STREAM_WINDOW >> 1 and not stream.flags & (PAUSED | BUSY | LOCAL_CLOSED):
            self.grant(stream)
        return True

    def grant(self, stream: Stream) -> None:
        """Open a stream's window fully again."""
        increment = stream.received - stream.granted
        if increment:
            stream.granted = stream.received
            self.write(encode_window_update(stream.id, increment))

    def _open_window(self) -> None:
        """Let the peer send more on this connection, unless too much of its responses waits."""
        if self.waiting_bytes <= MAX_WAITING_BYTES:
            self.out.append(encode_window_update(0, self._unacknowledged))
            self._unacknowledged = 0
        elif self._unacknowledged > CONNECTION_WINDOW:
            self.fail(Http2ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window allows")

    def drop(self, stream: Stream) -> None:
        super().drop(stream)
        # A peer whose window is used up may have nothing else to send.
        withheld = self._unacknowledged >= CONNECTION_WINDOW >> 1
        if withheld and self.waiting_bytes <= MAX_WAITING_BYTES and not self.failed:
            self._open_window()

    def pump(self, limit: int) -> bool:
        sent = super().pump(limit)
        # The unsent data may be below its bound again.
        if self._unacknowledged >= CONNECTION_WINDOW >> 1:
            self._open_window()
        return sent

    # Streams

    def takes_nothing(self) -> None:
        """The peer has read none of its responses for a while: refuse its new calls if too much of them waits.

        A peer that does read may have more than that in flight: its calls do not fail for it.
        """
        # 0 stays: after a GOAWAY no call is accepted again.
        if self.waiting_bytes > MAX_WAITING_BYTES and self._room > 0:
            self._room = _OVERLOADED

    def _is_full(self) -> bool:
        """Whether new calls are refused. They are accepted again once half of the allowed backlog was sent or
        dropped.
        """
        if self._room < 0 and self.waiting_bytes <= MAX_WAITING_BYTES >> 1:
            self._room = self._max_streams
        return len(self.streams) >= self._room

    @property
    def closed_to_new(self) -> bool:
        """Whether a GOAWAY has announced that this side accepts no further streams."""
        return not self._room

    def close_to_new(self) -> None:
        """Accept no further streams; the caller sends the GOAWAY."""
        self._room = 0
