"""An HTTP/2 connection of a client that carries one call at a time: frames in and out, windows, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from hpack import Encoder
from hpack.exceptions import HPACKError

from naiad.client.encode import check_headers
from naiad.client.errors import ConnectionFailedError
from naiad.client.grpc_messages import GrpcResponse
from naiad.client.protocol import Parts
from naiad.wire.grpc.messages import PREFIX_BYTES, prefix
from naiad.wire.grpc.paths import INFERENCE, path
from naiad.wire.http2 import frames
from naiad.wire.http2.frames import Http2ErrorCode, Setting
from naiad.wire.http2.response_blocks import ResponseBlocks

_HEAD: Final = frames.FRAME_HEAD_BYTES
_REFILL_BYTES: Final = 1 << 25
_TABLE_BYTES: Final = 4096
_IS_INDEXED: Final = 0x80
_HELLO: Final = (
    frames.PREFACE
    # Without a table every block of headers means the same whenever it comes, so blocks are looked up.
    + frames.encode_settings(
        {Setting.HEADER_TABLE_SIZE: 0, Setting.ENABLE_PUSH: 0, Setting.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW}
    )
    + frames.encode_window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
)


def own_headers(headers: Mapping[str, str]) -> bytes:
    """Headers of one call, as a block that may follow any other: it neither reads nor changes the server's table.

    Raises:
        InvalidArgumentError: as ``check_headers``.
    """
    if not headers:
        return b""
    check_headers(headers)
    return Encoder().encode([(name.lower(), value, True) for name, value in headers.items()])


class GrpcExchange:
    """The calls of one connection, without its socket.

    Args:
        headers: of every call, beside its path; pseudo-headers first.
    """

    def __init__(self, headers: Sequence[tuple[str, str]]) -> None:
        self._headers = headers
        self._encoder = Encoder()
        self._indexed: dict[str, bytes] = {}
        self._out: list[bytes | memoryview] = [_HELLO]
        self._received = b""
        # The stream of the present call, 0 for none, and that of the next one.
        self._stream, self._next_stream = 0, 1
        # The rest of a message that waits for room in the windows.
        self._waiting: list[memoryview] = []
        self._window = self._initial_window = frames.DEFAULT_WINDOW
        self._stream_window = 0
        self._frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._consumed = self._stream_consumed = 0
        # What has come of the message, or of the messages of a stream, and how much of it makes the next one whole.
        self._message: list[bytes] = []
        self._message_bytes, self._wanted_bytes = 0, PREFIX_BYTES
        self._fields: dict[str, str] = {}
        self._is_leaving = self._is_greeted = False
        self._blocks = ResponseBlocks()

    # Sending

    def begin(self, request: Parts) -> None:
        """Begin a call: its name, the block of headers of its own, and its message with the prefix.

        Raises:
            ConnectionFailedError: the server has said that it takes no further calls here.
        """
        if self._is_leaving:
            raise ConnectionFailedError("the server ended the connection before the call", was_sent=False)
        call, own_block, *message = request
        self._stream = self._next_stream
        self._next_stream += 2
        self._stream_window = self._initial_window
        self._stream_consumed = 0
        self._message, self._fields = [], {}
        self._message_bytes, self._wanted_bytes = 0, PREFIX_BYTES
        self._out.append(
            frames.encode_frame(
                frames.HEADERS, frames.END_HEADERS, self._stream, self._block(str(call, "ascii")) + own_block
            )
        )
        self._waiting = [memoryview(part) for part in message if len(part)]
        self._move()

    def _block(self, call: str) -> bytes:
        """The headers of a call. Once the server's table has all of them, they are the same few bytes."""
        found = self._indexed.get(call)
        if found is None:
            found = self._encoder.encode([(":path", path(INFERENCE, call)), *self._headers])
            if all(byte & _IS_INDEXED for byte in found):
                self._indexed[call] = found
            else:
                # New entries move those that earlier blocks refer to.
                self._indexed.clear()
        return found

    def outgoing(self) -> Parts:
        """The bytes to send now."""
        if not self._out:
            return ()
        out, self._out = self._out, []
        return [b"".join(out)] if sum(map(len, out)) <= frames.DEFAULT_FRAME_BYTES else out

    def _move(self) -> None:
        """Move what the windows have room for into frames."""
        waiting = self._waiting
        while waiting:
            part = waiting[0]
            size = min(len(part), self._window, self._stream_window, self._frame_bytes)
            if size <= 0:
                return
            is_last = size == len(part) and len(waiting) == 1
            head = frames.frame_head.pack(size << 8 | frames.DATA, frames.END_STREAM if is_last else 0, self._stream)
            self._out += (head, part[:size])
            self._window -= size
            self._stream_window -= size
            if size == len(part):
                waiting.pop(0)
            else:
                waiting[0] = part[size:]

    # Receiving

    def take_messages(self) -> Sequence[bytes]:
        """The whole messages that have come since the last call."""
        # Parts of a large message are joined once.
        if self._message_bytes < self._wanted_bytes:
            return ()
        data, at, found = b"".join(self._message), 0, []
        self._wanted_bytes = PREFIX_BYTES
        while len(data) - at >= PREFIX_BYTES:
            is_compressed, size = prefix.unpack_from(data, at)
            if is_compressed:
                raise ConnectionFailedError("the server sent a compressed message", was_sent=True)
            stop = at + PREFIX_BYTES + size
            if stop > len(data):
                self._wanted_bytes = stop - at
                break
            found.append(data[at + PREFIX_BYTES : stop])
            at = stop
        self._message = [data[at:]] if at < len(data) else []
        self._message_bytes = len(data) - at
        return found

    def end(self) -> GrpcResponse | None:
        """The connection has ended, which ends no call."""
        return None

    def feed(self, data: bytes) -> GrpcResponse | None:
        """Take what has arrived; the response once it is whole.

        Raises:
            ConnectionFailedError: the bytes are no frames, or the server ends the connection.
        """
        try:
            return self._take(self._received + data if self._received else data)
        except (frames.Http2ConnectionError, HPACKError, IndexError, ValueError) as error:
            raise ConnectionFailedError(f"bad frames of HTTP/2: {error}", was_sent=True) from None

    def _take(self, data: bytes) -> GrpcResponse | None:
        at, found = 0, None
        while len(data) - at >= _HEAD:
            word, flags, stream = frames.frame_head.unpack_from(data, at)
            if word >> 8 > frames.DEFAULT_FRAME_BYTES or not (self._is_greeted or word & 255 == frames.SETTINGS):
                hint = "; this port speaks HTTP/1.1, gRPC may have another" if data.startswith(b"HTTP/1") else ""
                raise ValueError(f"expected SETTINGS and frames of at most 16 KiB, got {data[at : at + 40]!r}{hint}")
            self._is_greeted = True
            stop = at + _HEAD + (word >> 8)
            if stop > len(data):
                break
            found = self._frame(word & 255, flags, stream, data[at + _HEAD : stop]) or found
            at = stop
        self._received = data[at:]
        return found

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> GrpcResponse | None:
        if kind == frames.DATA:
            return self._data(flags, stream, payload)
        if kind == frames.HEADERS:
            if not flags & frames.END_HEADERS:
                raise ValueError("a block of headers in several frames")
            fields = self._blocks.fields(frames.without_padding(payload, flags))
            if stream == self._stream:
                self._fields = self._fields | fields if self._fields else fields
                if flags & frames.END_STREAM:
                    return self._response()
        elif kind == frames.RST_STREAM and stream == self._stream:
            self._reset(int.from_bytes(payload, "big"))
        else:
            self._control(kind, flags, stream, payload)
        return None

    def _data(self, flags: int, stream: int, payload: bytes) -> GrpcResponse | None:
        size = len(payload)
        self._consumed += size
        if self._consumed >= _REFILL_BYTES:
            self._out.append(frames.encode_window_update(0, self._consumed))
            self._consumed = 0
        if stream != self._stream:
            return None
        content = frames.without_padding(payload, flags)
        self._message.append(content)
        self._message_bytes += len(content)
        if flags & frames.END_STREAM:
            # gRPC ends a response with fields; a server of other things may not.
            return self._response()
        self._stream_consumed += size
        if self._stream_consumed >= _REFILL_BYTES:
            self._out.append(frames.encode_window_update(stream, self._stream_consumed))
            self._stream_consumed = 0
        return None

    def _response(self) -> GrpcResponse:
        fields = self._fields
        # A server that refuses a call before it has read all of it leaves the rest of the stream open.
        closes = self._is_leaving or bool(self._waiting) or self._next_stream > frames.MAX_STREAM_ID
        self._waiting = []
        # A server may reset a stream behind its response, which changes nothing.
        self._stream = 0
        code = fields.get("grpc-status", "")
        if not code.isdigit():
            text = f"HTTP status {fields.get(':status', 'none')}: the server does not speak gRPC here"
            return GrpcResponse(2, text, b"", closes)
        return GrpcResponse(int(code), unquote(fields.get("grpc-message", "")), b"".join(self._message), closes)

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == frames.SETTINGS and not flags & frames.ACK:
            self._settings(payload)
        elif kind == frames.WINDOW_UPDATE:
            size = int.from_bytes(payload, "big")
            if not stream:
                self._window += size
            elif stream == self._stream:
                self._stream_window += size
            self._move()
        elif kind == frames.PING and not flags & frames.ACK:
            self._out.append(frames.encode_ping(payload, ack=True))
        elif kind == frames.GOAWAY:
            self._is_leaving = True
            if int.from_bytes(payload[:4], "big") & frames.MAX_STREAM_ID < self._stream:
                raise ConnectionFailedError("the server ended the connection before the call", was_sent=False)

    def _settings(self, payload: bytes) -> None:
        settings = dict(frames.decode_settings(payload))
        window = settings.get(Setting.INITIAL_WINDOW_SIZE, self._initial_window)
        self._stream_window += window - self._initial_window
        self._initial_window = window
        self._frame_bytes = settings.get(Setting.MAX_FRAME_SIZE, self._frame_bytes)
        if (table_bytes := settings.get(Setting.HEADER_TABLE_SIZE, _TABLE_BYTES)) < self._encoder.header_table_size:
            self._encoder.header_table_size = table_bytes
            self._indexed.clear()
        self._out.append(frames.SETTINGS_ACK)
        self._move()

    def _reset(self, code: int) -> None:
        name = Http2ErrorCode(code).name if code in Http2ErrorCode.__members__.values() else f"the code {code}"
        was_sent = code != Http2ErrorCode.REFUSED_STREAM
        raise ConnectionFailedError(f"the server reset the call with {name}", was_sent=was_sent)
