"""The frames of an HTTP/2 connection that carry no request: settings, windows, pings, resets; and their limits.

Source: RFC 9113, sections 6.3 to 6.9 and 10.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from naiad.wire.http2.frames import (
    ACK,
    CONTINUATION,
    GOAWAY,
    MAX_STREAM_ID,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    SETTINGS_ACK,
    WINDOW_UPDATE,
    Http2ConnectionError,
    Http2ErrorCode,
    Http2StreamError,
    Setting,
    decode_settings,
    encode_goaway,
    encode_ping,
    encode_reset,
)
from naiad.wire.http2.outbound import OutboundQueue

MAX_CHEAP_FRAMES: Final = 10_000
"""How many frames that carry nothing may come before the connection checks that the peer does anything useful."""
CHEAP_PER_USEFUL: Final = 20
MAX_RESETS: Final = 10_000
"""How many calls a peer may give up, or make this side give up, at once."""
RESETS_FORGIVEN_PER_S: Final = 1_000
_REMEMBERED_RESETS: Final = 1024
_STREAMS_PER_CHEAP: Final = 8
DEFAULT_TABLE_BYTES: Final = 4096
_SIZES: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_OF_CONNECTION: Final = (SETTINGS, PING, GOAWAY)


class ConnectionControl(OutboundQueue):
    """Adds the control frames.

    Attributes:
        last_stream_id: the newest stream that the peer opened.
        failed: the connection has ended with the error ``failure``; nothing follows the bytes in ``out``.
        settled: the peer's first settings have been received.
        reset_here: the streams that this side closed lately, for which frames may still arrive.
        data_frames: the number of DATA frames that did not end their stream, as a sign of life.
        refused_id: the newest stream that was refused because the connection ends.
        on_ping: called when the peer sends a ping; returns true when that was one too many.
        on_ping_ack: called with the eight bytes of a ping acknowledgement.
    """

    __slots__ = (
        "_cheap",
        "_resets",
        "_useful",
        "data_frames",
        "failed",
        "failure",
        "last_stream_id",
        "on_ping",
        "on_ping_ack",
        "refused_id",
        "reset_here",
        "settled",
    )

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__(wake)
        self._cheap = 0
        self._useful = 0
        self._resets = 0
        self.data_frames = 0
        self.failed = False
        self.failure = ""
        self.last_stream_id = 0
        self.refused_id = 0
        self.reset_here: deque[int] = deque(maxlen=_REMEMBERED_RESETS)
        self.settled = False
        self.on_ping: Callable[[], bool] | None = None
        self.on_ping_ack: Callable[[bytes], None] | None = None

    # Endings

    def fail(self, code: Http2ErrorCode, reason: str) -> None:
        """End the connection: send the reason, and abandon every stream."""
        if self.failed:
            return
        self.failed = True
        self.failure = reason
        self.out.append(encode_goaway(self.last_stream_id, code, reason))
        self.lose_streams(code)
        if not self.inside:
            self.wake()

    def lose_streams(self, code: int) -> None:
        """Notify every open stream that its response cannot be sent any more."""
        # The table is empty before the first callback, which may look at it.
        lost = list(self.streams.values())
        self.streams.clear()
        self.unfinished.clear()
        # The last first: a request that waits behind another must not begin as that one ends.
        for stream in reversed(lost):
            self.drop(stream)
            stream.lost(code)

    def reset(self, stream_id: int, code: Http2ErrorCode) -> None:
        """End one stream by an error of the peer."""
        self.out.append(encode_reset(stream_id, code))
        self.closed_here(stream_id)
        self._abandon(stream_id, code)
        if not self.inside:
            self.wake()

    def _abandon(self, stream_id: int, code: int) -> None:
        """Forget a stream that the peer gave up, or made this side give up.

        Raises:
            Http2ConnectionError: it does that all the time. Opening calls only to give them up at once makes work
                without ever being over the limit of streams.
        """
        stream = self.streams.pop(stream_id, None)
        if stream is None:
            return
        self.unfinished.discard(stream_id)
        self.drop(stream)
        stream.lost(code)
        self._resets += 1
        if self._resets > MAX_RESETS:
            raise Http2ConnectionError(Http2ErrorCode.ENHANCE_YOUR_CALM, f"{self._resets} calls given up in a row")

    def closed_here(self, stream_id: int) -> None:
        self.reset_here.append(stream_id)

    # Frames

    def control_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """A whole frame of any type but DATA, HEADERS and CONTINUATION of a header block."""
        self._check_frame(kind, stream_id, len(payload))
        if kind == WINDOW_UPDATE:
            self.window_update(stream_id, int.from_bytes(payload, "big"))
            return
        if kind == SETTINGS:
            self._settings(flags, payload)
        elif kind == PING:
            self._ping(flags, payload)
        elif kind == RST_STREAM:
            self._abandon(stream_id, int.from_bytes(payload, "big"))
        elif kind in (PUSH_PROMISE, CONTINUATION):
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"frame of type {kind} out of place")
        # PRIORITY is ignored (5.3.2), and so are unknown types (5.5). A peer that sends GOAWAY still reads.
        self.spend()

    def _check_frame(self, kind: int, stream_id: int, size: int) -> None:
        """A frame's length, and whether it belongs to a stream or to the connection."""
        expected = _SIZES.get(kind)
        if expected is not None and size != expected:
            # An error of the stream (6.3), but a stream that is idle cannot be reset.
            if kind == PRIORITY and stream_id and not self.is_idle(stream_id):
                raise Http2StreamError(Http2ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY of {size} bytes")
            raise Http2ConnectionError(Http2ErrorCode.FRAME_SIZE_ERROR, f"frame of type {kind} with {size} bytes")
        if kind == GOAWAY and size < 8:
            raise Http2ConnectionError(Http2ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY of {size} bytes")
        if kind in _OF_CONNECTION and stream_id:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"frame of type {kind} on stream {stream_id}")
        if kind in (PRIORITY, RST_STREAM) and not stream_id:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"frame of type {kind} on stream 0")
        if kind == RST_STREAM and self.is_idle(stream_id):
            raise _on_idle(kind, stream_id)

    def is_idle(self, stream_id: int) -> bool:
        """Nobody has opened this stream: the peer opens odd ones in rising order, this side opens none (5.1.1)."""
        return stream_id > max(self.last_stream_id, self.refused_id) or (stream_id & 1 == 0 and stream_id != 0)

    def window_update(self, stream_id: int, increment: int) -> None:
        """The peer accepts more on one stream, or with stream 0 on the connection. Some peers send both for each
        call.
        """
        stream = self.streams.get(stream_id)
        if stream is not None:
            # The highest bit is reserved (6.9).
            self.grow_stream_window(stream, increment & MAX_STREAM_ID)
        elif not stream_id:
            self.grow_window(increment & MAX_STREAM_ID)
        elif self.is_idle(stream_id):
            raise _on_idle(WINDOW_UPDATE, stream_id)
        # ``spend`` without its call: some peers send two of these frames for each request.
        self._cheap += 1
        if self._cheap > MAX_CHEAP_FRAMES:
            self.spend(0)

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            if payload:
                raise Http2ConnectionError(Http2ErrorCode.FRAME_SIZE_ERROR, "acknowledgement of SETTINGS with content")
            return
        # Only the last value of each counts: none of these means anything in between.
        settings = dict(decode_settings(payload))
        if (window := settings.get(Setting.INITIAL_WINDOW_SIZE)) is not None and window != self.initial_window:
            self.set_initial_window(window)
            # The change visits each stream, so it counts as several frames.
            self.spend(len(self.streams) // _STREAMS_PER_CHEAP)
        self.frame_bytes = settings.get(Setting.MAX_FRAME_SIZE, self.frame_bytes)
        # This side never uses the table, but has to acknowledge that it became smaller.
        if settings.get(Setting.HEADER_TABLE_SIZE, DEFAULT_TABLE_BYTES) < DEFAULT_TABLE_BYTES:
            self.plain = False
        self.settled = True
        self.out.append(SETTINGS_ACK)

    def _ping(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            if self.on_ping_ack is not None:
                self.on_ping_ack(payload)
            return
        self.out.append(encode_ping(payload, ack=True))
        if self.on_ping is not None and self.on_ping():
            raise Http2ConnectionError(Http2ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")

    # Floods

    def spend(self, frames: int = 1) -> None:
        """Count a frame that carries nothing, or a frame that costs as much as ``frames`` of these.

        A peer may send many, as long as it also sends something useful.

        Raises:
            Http2ConnectionError: the peer sends too many.
        """
        self._cheap += frames
        if self._cheap <= MAX_CHEAP_FRAMES:
            return
        # Streams, of which the peer opens every second id; DATA frames received; frames sent after a wait.
        useful = (self.last_stream_id + 1 >> 1) + self.data_frames + self.pumped
        if (useful - self._useful) * CHEAP_PER_USEFUL < self._cheap:
            raise Http2ConnectionError(Http2ErrorCode.ENHANCE_YOUR_CALM, f"{self._cheap} frames that carry nothing")
        self._useful = useful
        self._cheap = 0

    def forgive(self, seconds: int) -> None:
        """Forgive resets: ``seconds`` have passed since the last call."""
        self._resets = max(0, self._resets - seconds * RESETS_FORGIVEN_PER_S)


def _on_idle(kind: int, stream_id: int) -> Http2ConnectionError:
    return Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"frame of type {kind} on idle stream {stream_id}")
