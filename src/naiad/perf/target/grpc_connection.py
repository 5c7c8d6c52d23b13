"""An HTTP/2 connection of a gRPC client: frames in and out, windows, settings; calls are left to its sub-classes."""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from hpack import Encoder
from hpack.exceptions import HPACKError

from naiad.perf.target.address import Address, cause_of
from naiad.perf.target.protocol import Place, Poller, ResponseListener
from naiad.perf.target.socket_channel import SocketChannel
from naiad.wire.http2 import frames
from naiad.wire.http2.response_blocks import ResponseBlocks

PREFIX_BYTES: Final = 5
_HEAD: Final = frames.FRAME_HEAD_BYTES
_TABLE_BYTES: Final = 4096
_REFILL_BYTES: Final = 1 << 29
_HELLO: Final = (
    frames.PREFACE
    + frames.encode_settings(
        {
            # Without a table every block of headers means the same whenever it comes, so blocks are looked up.
            frames.Setting.HEADER_TABLE_SIZE: 0,
            frames.Setting.ENABLE_PUSH: 0,
            frames.Setting.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW,
        }
    )
    + frames.encode_window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
)

clock = time.monotonic_ns
unpack_head = frames.frame_head.unpack_from


class WaitingData:
    """The rest of a message that waits for room in a window."""

    __slots__ = ("data", "ends_stream", "stream")

    def __init__(self, stream: int, data: memoryview, *, ends_stream: bool) -> None:
        self.stream = stream
        self.data = data
        self.ends_stream = ends_stream


class GrpcClientConnection(SocketChannel):
    """The base of the channels of gRPC. ``start`` leaves bytes in ``_out``; they go out together in ``flush``.

    Args:
        headers: name and value of every header of a call, pseudo-headers first.
    """

    def __init__(
        self, address: Address, poller: Poller, listener: ResponseListener, headers: Sequence[tuple[str, str]]
    ) -> None:
        super().__init__(address, poller, listener)
        self._headers = headers
        self._out: list[bytes | memoryview] = []
        self._started: list[int] = []
        self._is_due_to_flush = False
        self._begin()

    def _begin(self) -> None:
        """The state of a new connection."""
        self._received = b""
        self._window = frames.DEFAULT_WINDOW
        self._initial_window = frames.DEFAULT_WINDOW
        self._stream_windows: dict[int, int] = {}
        self._streams: dict[int, Place] = {}
        self._frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._max_streams = 1 << 30
        self._next_stream = 1
        self._waiting: deque[WaitingData] = deque()
        self._consumed = 0
        self._is_leaving = False
        self._farewell = ""
        self._blocks = ResponseBlocks()
        self._first_block = self._block = b""

    def connect(self) -> None:
        """Begin to connect, without waiting."""
        self._begin()
        self._out.clear()
        self._started.clear()
        super().connect()

    def _opened(self) -> None:
        # Calls may start once the server's settings are known, so this is half of being open.
        self.is_open = True
        self._unsent.clear()
        self._poller.watch_writes(self, writes=False)
        try:
            self._write(_HELLO)
        except OSError as error:
            self._lost(cause_of(error))
            return
        self.is_open = False
        self._is_greeted = True

    _is_greeted = False

    def handle(self, mask: int) -> None:
        """Take an event beside plain readability."""
        if self._is_greeted and not self.is_open:
            self.receive()
        else:
            super().handle(mask)

    def _drop(self) -> None:
        self._is_greeted = False
        super()._drop()

    # Sending

    def _put(self, stream: int, head: bytes, message: bytes, *, ends_stream: bool) -> None:
        """Queue a message, as far as the windows have room; ``head`` goes before it in any case."""
        out = self._out
        size = len(message)
        room = self._stream_windows.get(stream, self._initial_window)
        if head:
            out.append(head)
        if size <= self._window and size <= room and not self._waiting and size <= self._frame_bytes:
            self._window -= size
            if not ends_stream:
                self._stream_windows[stream] = room - size
            flags = frames.END_STREAM if ends_stream else 0
            out.append(frames.frame_head.pack(size << 8 | frames.DATA, flags, stream))
            out.append(message)
        else:
            self._waiting.append(WaitingData(stream, memoryview(message), ends_stream=ends_stream))
            self._send_waiting()
        if not self._is_due_to_flush:
            self._is_due_to_flush = True
            self._poller.flush_later(self)

    def _send_waiting(self) -> None:
        """Move what the windows have room for from ``_waiting`` to ``_out``, in order for each stream."""
        blocked: list[WaitingData] = []
        while self._waiting and self._window > 0:
            waiting = self._waiting.popleft()
            if not self._send_part(waiting):
                blocked.append(waiting)
        self._waiting.extendleft(reversed(blocked))

    def _send_part(self, waiting: WaitingData) -> bool:
        stream = waiting.stream
        room = min(self._stream_windows.get(stream, self._initial_window), self._window)
        out, data = self._out, waiting.data
        at = 0
        while at < len(data) and room > 0:
            size = min(len(data) - at, room, self._frame_bytes)
            is_last = at + size == len(data)
            flags = frames.END_STREAM if is_last and waiting.ends_stream else 0
            out.append(frames.frame_head.pack(size << 8 | frames.DATA, flags, stream))
            out.append(data[at : at + size])
            at += size
            room -= size
        self._window -= at
        self._stream_windows[stream] = self._stream_windows.get(stream, self._initial_window) - at
        waiting.data = data[at:]
        return at == len(data)

    def flush(self) -> None:
        """Send what was started in this turn."""
        self._is_due_to_flush = False
        out = self._out
        if not out or not self.is_open:
            return
        before = clock()
        data = b"".join(out)
        out.clear()
        try:
            self._write(data)
        except OSError as error:
            self._lost(cause_of(error))
            return
        self._times.send_ns += (clock() - before) * self._count_started()

    def _count_started(self) -> int:
        """How many requests the data of a flush belong to."""
        count = len(self._started)
        self._started.clear()
        return count

    # Receiving

    def receive(self) -> None:
        """Take what has arrived."""
        before = clock()
        try:
            data = self._read()
        except OSError as error:
            self._lost(cause_of(error))
            return
        if data is None:
            return
        if not data:
            self._lost(self._farewell or "the server closed the connection")
            return
        self._since = before
        try:
            self._take(data, clock())
            if not self.is_open and self._received.startswith(b"HTTP/1"):
                # As a frame it would be 4 MiB long, and never be whole.
                self._lost("the server answered in HTTP/1.1, expected gRPC over HTTP/2, which may have another port")
        except (frames.Http2ConnectionError, HPACKError, struct.error) as error:
            self._lost(f"bad frames of HTTP/2: {error}")
        if self._is_due_to_flush:
            # At once: what waits until the end of the turn has its time counted for other connections.
            self.flush()

    def _take(self, data: bytes, now: int) -> None:
        if self._received:
            data = self._received + data
            self._received = b""
        at, end = 0, len(data)
        socket = self._socket
        while end - at >= _HEAD:
            word, flags, stream = unpack_head(data, at)
            begin = at + _HEAD
            stop = begin + (word >> 8)
            if stop > end:
                if word & 255 == frames.DATA and end - begin > _HEAD:
                    # The part of a long frame that is there counts as a frame, so that nothing long is kept.
                    rest = (stop - end) << 8 | frames.DATA
                    self._consumed += end - begin
                    self._data(stream, flags & ~frames.END_STREAM, data[begin:end], now)
                    self._received = frames.frame_head.pack(rest, flags, stream)
                    return
                break
            kind = word & 255
            if kind == frames.DATA:
                self._consumed += stop - begin
                self._data(stream, flags, data[begin:stop], now)
            elif kind == frames.HEADERS:
                self._take_headers(stream, flags, data[begin:stop], now)
            else:
                self._control(kind, flags, stream, data[begin:stop], now)
            if self._socket is not socket:
                return
            at = stop
        if at < end:
            self._received = data[at:] if at else data
        if self._consumed > _REFILL_BYTES:
            self._refill()

    def _refill(self) -> None:
        self._queue(frames.encode_window_update(0, self._consumed))
        self._consumed = 0

    def _take_headers(self, stream: int, flags: int, payload: bytes, now: int) -> None:
        if not flags & frames.END_HEADERS:
            raise frames.Http2ConnectionError(
                frames.Http2ErrorCode.INTERNAL_ERROR, "a block of headers in several frames"
            )
        if flags & (frames.PADDED | frames.HAS_PRIORITY):
            payload = frames.without_padding(payload, flags)
        self._fields(stream, payload, now, ends=bool(flags & frames.END_STREAM))

    def _control(self, kind: int, flags: int, stream: int, payload: bytes, now: int) -> None:
        if kind == frames.WINDOW_UPDATE:
            self._grow_window(stream, int.from_bytes(payload, "big"))
        elif kind == frames.SETTINGS and not flags & frames.ACK:
            self._take_settings(payload)
        elif kind == frames.PING and not flags & frames.ACK:
            self._queue(frames.encode_ping(payload, ack=True))
        elif kind == frames.RST_STREAM:
            self._reset(stream, int.from_bytes(payload, "big"), now)
        elif kind == frames.GOAWAY:
            self._leave(payload)

    def _queue(self, frame: bytes) -> None:
        self._out.append(frame)
        if not self._is_due_to_flush:
            self._is_due_to_flush = True
            self._poller.flush_later(self)

    def _grow_window(self, stream: int, size: int) -> None:
        if stream:
            if stream not in self._streams:
                return
            self._stream_windows[stream] = self._stream_windows.get(stream, self._initial_window) + size
        else:
            self._window += size
        if self._waiting:
            self._send_waiting()
            self._queue(b"")

    def _take_settings(self, payload: bytes) -> None:
        settings = dict(frames.decode_settings(payload))
        window = settings.get(frames.Setting.INITIAL_WINDOW_SIZE, self._initial_window)
        change = window - self._initial_window
        self._stream_windows = {stream: room + change for stream, room in self._stream_windows.items()}
        self._initial_window = window
        self._frame_bytes = settings.get(frames.Setting.MAX_FRAME_SIZE, self._frame_bytes)
        self._max_streams = settings.get(frames.Setting.MAX_CONCURRENT_STREAMS, self._max_streams)
        self._queue(frames.SETTINGS_ACK)
        if not self.is_open:
            self._encode_headers(settings.get(frames.Setting.HEADER_TABLE_SIZE, _TABLE_BYTES))
            self.is_open = True
            self._poller.watch_writes(self, writes=bool(self._unsent))
            self._ready()
        elif self._waiting:
            self._send_waiting()

    def _encode_headers(self, table_bytes: int) -> None:
        """Blocks of the headers of the first call, which fills the server's table, and of all others."""
        encoder = Encoder()
        if table_bytes < _TABLE_BYTES:
            encoder.header_table_size = table_bytes
        self._first_block = encoder.encode(self._headers)
        self._block = encoder.encode(self._headers)

    def _next_block(self) -> bytes:
        if self._first_block:
            block, self._first_block = self._first_block, b""
            return block
        return self._block

    def _leave(self, payload: bytes) -> None:
        """The server ends the connection: what it has not begun is sent again on the next one."""
        self._is_leaving = True
        code = int.from_bytes(payload[4:8], "big")
        if code:
            text = payload[8:].decode("utf-8", "replace")
            self._farewell = f"the server ended the connection with {_code_name(code)} {text}".rstrip()
        self._retry_above(int.from_bytes(payload[:4], "big") & frames.MAX_STREAM_ID)

    def _take_in_flight(self) -> list[tuple[Place, int]]:
        now = clock()
        lost = [(place, now) for place in self._streams.values() if place.request is not None]
        self._streams.clear()
        for place, _ in lost:
            place.request = None
        return lost

    def _take_waiting(self) -> list[tuple[Place, int]]:
        now = clock()
        waiting = [(place, now) for place in self._take_held() if place.request is not None]
        for place, _ in waiting:
            place.request = None
        return waiting

    # What calls are made of

    def _take_held(self) -> Sequence[Place]:
        """The places whose requests wait for a connection, which are then forgotten."""
        raise NotImplementedError

    def _ready(self) -> None:
        """Calls may start."""

    def _retry_above(self, last_stream: int) -> None:
        """Keep the requests of later streams for a new connection, and make it when nothing else is in flight."""
        raise NotImplementedError

    def _data(self, stream: int, flags: int, payload: bytes, now: int) -> None:
        raise NotImplementedError

    def _fields(self, stream: int, block: bytes, now: int, *, ends: bool) -> None:
        raise NotImplementedError

    def _reset(self, stream: int, code: int, now: int) -> None:
        raise NotImplementedError


def _code_name(code: int) -> str:
    try:
        return frames.Http2ErrorCode(code).name
    except ValueError:
        return f"the code {code}"


def reset_text(code: int) -> str:
    """What a RST_STREAM says."""
    return f"the server reset the stream with {_code_name(code)}"
