"""gRPC callers in a closed loop on raw sockets, one call at a time each, so that calls may differ from one another.

They keep to HTTP/2 but know no more of it than they need: a message goes out once the server's window has room for all
of it, and answers are judged by their ``grpc-status``.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from hpack import Decoder, Encoder

from .crew import Crew, run_crew
from .grpc_request import framed
from .tally import Tally

END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
HEADER_TABLE_SIZE = 1
FRAME_HEAD = struct.Struct(">IBI")
SETTING = struct.Struct(">HI")
FRAME_BYTES = 16_384
INITIAL_WINDOW = 65_535
LARGEST_WINDOW = 2**31 - 1
CANCEL = struct.pack(">I", 8)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_STATUS = -1


class Kind(IntEnum):
    """The kinds of frames that callers send or heed."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8


@dataclass(frozen=True, slots=True)
class GrpcCall:
    """One call and the ``grpc-status`` codes that are right for it.

    Attributes:
        message: the only request message, without prefix; at most 60,000 bytes.
        metadata: further headers.
        cancel: the call is reset as soon as it is sent, and nobody waits for its answer.
        close: the connection is closed behind the answer.
    """

    kind: str
    path: str
    message: bytes
    codes: tuple[int, ...] = (0,)
    metadata: tuple[tuple[str, str], ...] = field(default=())
    cancel: bool = False
    close: bool = False


def run_grpc_calls(port: int, calls: Iterator[GrpcCall], connections: int, limit_seconds: float) -> Tally:
    """Send every call over ``connections`` connections and return what came of them.

    Raises:
        CaseError: calls were still unanswered after ``limit_seconds``.
    """
    return run_crew(port, calls, _GrpcCaller, connections, limit_seconds)


def frame(kind: Kind, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One HTTP/2 frame."""
    return FRAME_HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


HELLO = (
    PREFACE
    + frame(Kind.SETTINGS, 0, 0)
    + frame(Kind.WINDOW_UPDATE, 0, 0, struct.pack(">I", LARGEST_WINDOW - INITIAL_WINDOW))
)


class _GrpcCaller(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.call: GrpcCall | None = None
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.received = bytearray()
        self.stream = -1
        self.window = INITIAL_WINDOW
        self.unsent = b""
        self.sent = 0.0
        self.finished = False
        self.farewell = ""

    # Sending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.crew.callers.add(self)
        self.transport.write(HELLO)
        self.send_next()

    def send_next(self) -> None:
        if self.transport.is_closing():
            return
        self.call = call = next(self.crew.calls, None)
        if call is None:
            self.finished = True
            self.transport.close()
            return
        self.sent = time.perf_counter()
        self.stream += 2
        block = self.encoder.encode(request_headers(call))
        self.transport.write(frame(Kind.HEADERS, END_HEADERS, self.stream, block))
        self.unsent = framed(call.message)
        self.send_message()

    def send_message(self) -> None:
        if not self.unsent or len(self.unsent) > self.window or self.call is None:
            return
        message, self.unsent = self.unsent, b""
        self.window -= len(message)
        self.transport.write(b"".join(data_frames(self.stream, message)))
        if self.call.cancel:
            self.transport.write(frame(Kind.RST_STREAM, 0, self.stream, CANCEL))
            asyncio.get_running_loop().call_soon(self.take, self.call, "")

    # Receiving

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= FRAME_HEAD.size:
            length_and_kind, flags, stream = FRAME_HEAD.unpack_from(self.received)
            end = FRAME_HEAD.size + (length_and_kind >> 8)
            if len(self.received) < end:
                return
            payload = bytes(self.received[FRAME_HEAD.size : end])
            del self.received[:end]
            self.take_frame(length_and_kind & 255, flags, stream, payload)

    def take_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        match kind:
            case Kind.HEADERS:
                self.take_headers(flags, stream, payload)
            case Kind.DATA if flags & END_STREAM:
                self.end(stream, "the answer ended without trailers")
            case Kind.RST_STREAM:
                self.end(stream, f"the stream was reset with code {int.from_bytes(payload, 'big')}")
            case Kind.SETTINGS if not flags & ACK:
                self.take_settings(payload)
            case Kind.PING if not flags & ACK:
                self.transport.write(frame(Kind.PING, ACK, 0, payload))
            case Kind.GOAWAY:
                code = int.from_bytes(payload[4:8], "big")
                self.farewell = f"GOAWAY with code {code}: {payload[8:].decode(errors='replace')}"
            case Kind.WINDOW_UPDATE if stream == 0:
                self.window += int.from_bytes(payload, "big")
                self.send_message()

    def take_headers(self, flags: int, stream: int, payload: bytes) -> None:
        # Naiad's answers fit one frame and carry neither padding nor priority.
        if not flags & END_HEADERS or flags & (PADDED | PRIORITY):
            self.farewell = f"answer headers with flags {flags:#x}, expected them whole and plain"
            self.transport.abort()
            return
        headers = {str(name): str(value) for name, value in self.decoder.decode(payload)}
        if flags & END_STREAM:
            self.end(stream, self.judged(headers))

    def take_settings(self, payload: bytes) -> None:
        for position in range(0, len(payload), SETTING.size):
            name, value = SETTING.unpack_from(payload, position)
            if name == HEADER_TABLE_SIZE:
                self.encoder.header_table_size = min(value, 4096)
        self.transport.write(frame(Kind.SETTINGS, ACK, 0))

    def judged(self, headers: dict[str, str]) -> str:
        code = int(headers.get("grpc-status", NO_STATUS))
        if self.call is None or code in self.call.codes:
            return ""
        expected = " or ".join(map(str, self.call.codes))
        return f"answered grpc-status {code}, expected {expected}: {headers.get('grpc-message', '')}"

    def end(self, stream: int, problem: str) -> None:
        # A cancelled call's answer may still come; its caller has moved on.
        if stream == self.stream and self.call is not None and not self.call.cancel:
            self.take(self.call, problem)

    def take(self, call: GrpcCall, problem: str) -> None:
        if self.call is not call:
            return
        self.crew.tally.latencies.add(int((time.perf_counter() - self.sent) * 1e9))
        self.crew.tally.count(call.kind, problem)
        self.call = None
        if call.close:
            self.transport.close()
        else:
            self.send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        self.crew.callers.discard(self)
        if self.call is not None:
            reason = self.farewell or exc or "closed by the server"
            self.crew.tally.count(self.call.kind, f"connection lost without an answer ({reason})")
            self.call = None
        if not self.finished:
            self.crew.connect()
        self.crew.check_done()


def request_headers(call: GrpcCall) -> list[tuple[str, str]]:
    """What a client of gRPC sends before the message."""
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", call.path),
        (":authority", "127.0.0.1"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", "naiad-bench"),
        *call.metadata,
    ]


def data_frames(stream: int, message: bytes) -> Iterator[bytes]:
    """A whole message in DATA frames, of which the last ends the stream."""
    for start in range(0, len(message), FRAME_BYTES):
        last = start + FRAME_BYTES >= len(message)
        yield frame(Kind.DATA, END_STREAM if last else 0, stream, message[start : start + FRAME_BYTES])
