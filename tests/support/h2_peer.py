"""Clients of a ``GrpcConnection`` in memory: one that speaks through the library ``h2``, one that writes raw frames.

Neither shares code with the server: frames are read by ``hyperframe``, header blocks by ``hpack``, and ``h2`` raises
when the server breaks the protocol or sends more than the windows allow.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import hpack
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from hyperframe.frame import Frame

from naiad.clock import ManualClock
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.grpc.server.connection import GrpcConnection
from naiad.frontends.grpc.server.state import GrpcService
from support.h2_application import Application
from support.h2_frames import PING, RST, START, WINDOW, call_headers, data_frame, frame, message, plain_block

WAIT_S = 20.0
SECOND_NS = 1_000_000_000


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test on a loop of its own, within a time limit; nothing may be raised in a callback of the loop."""
    failures: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: failures.append(context))
        runner.run(asyncio.wait_for(test, WAIT_S))
    for context in failures:
        raise AssertionError(context["message"]) from context.get("exception")


class MemoryTransport(asyncio.Transport):
    """A peer in memory that keeps what is written.

    Attributes:
        unsent: what it says that waits in its buffer.
        closing, aborted: ``close`` and ``abort`` were called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.unsent = 0
        self.reading = True
        self.closing = False
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.aborted:
            assert not self.closing, "written after the end"
            self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True


@dataclass
class Answer:
    """What came back on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    trailers: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        """The gRPC status; it must have come, once."""
        found = [block["grpc-status"] for block in (self.headers, self.trailers) if "grpc-status" in block]
        assert len(found) == 1, f"{self!r:.300}"
        return int(found[0])

    @property
    def text(self) -> str:
        return self.trailers.get("grpc-message", self.headers.get("grpc-message", ""))

    @property
    def messages(self) -> list[bytes]:
        """The messages of the answer, which must be whole."""
        found, rest = [], bytes(self.data)
        while rest:
            _, size = struct.unpack_from(">BI", rest)
            assert len(rest) >= 5 + size, "a message is cut off"
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found


class Side:
    """The server's side of a connection in memory, and the time it sees.

    Attributes:
        arriving: what was sent and the server has not taken.
        read_ahead: the bytes of each read that the server did by itself.
    """

    def __init__(
        self,
        limits: GrpcLimits | None = None,
        service: GrpcService | None = None,
        application: Application | None = None,
        own_buffer: bool = False,
    ) -> None:
        self.application = application or Application()
        self.clock = ManualClock(1000 * SECOND_NS)
        if service is None:
            service = GrpcService(self.application.methods(), limits or GrpcLimits(), self.clock)
            service.shared_buffer = not own_buffer
        self.service = service
        self.arriving = memoryview(b"")
        self.read_ahead: list[int] = []
        self.transport = MemoryTransport()
        self.connection = GrpcConnection(service)
        self.core = self.connection.core
        self.connection.connection_made(self.transport)

    def deliver(self, data: bytes, chunk: int | None = None, ahead: int | None = None) -> None:
        """Hand over bytes the way a loop does, at most ``chunk`` at a time, as long as the connection reads.

        There is nobody else to have a turn. With ``ahead`` the connection may read as many bytes of them by itself at a
        time.
        """
        self.arriving = memoryview(data)

        def read_into(parts: Iterable[memoryview], size: int) -> int:
            taken = self._take(parts, min(size, ahead or 0))
            self.read_ahead.append(taken)
            return taken

        self.core.read_into = None if ahead is None else read_into
        while self.arriving and self.transport.reading and not self.transport.closing:
            target = memoryview(self.connection.get_buffer(-1))
            assert len(target), "no room to receive into"
            taken = self._take([target], chunk or len(data))
            target.release()
            self.connection.buffer_updated(taken)
            self.connection.read_on()

    def _take(self, parts: Iterable[memoryview], size: int) -> int:
        """Put at most ``size`` of the arriving bytes into ``parts``."""
        arriving, taken = self.arriving[:size], 0
        for part in parts:
            piece = arriving[taken : taken + len(part)]
            part[: len(piece)] = piece
            taken += len(piece)
        self.arriving = self.arriving[taken:]
        return taken

    async def turn(self) -> None:
        """Let the loop do what is due."""
        for _ in range(4):
            await asyncio.sleep(0)

    def pass_time(self, seconds: int) -> None:
        """Turn the clock second by second, as the listener's sweep would see it."""
        for _ in range(seconds):
            self.clock.advance(SECOND_NS)
            self.service.age(1)
            for connection in list(self.service.connections):
                connection.quiet += 1
                if connection.quiet >= connection.quiet_limit_s:
                    connection.check_time()

    async def live(self, seconds: int) -> None:
        """Let time pass, with a turn of the loop each second."""
        for _ in range(seconds):
            self.pass_time(1)
            await self.turn()

    def leaves_nothing(self) -> None:
        """No call is open and nothing is accounted for.

        One that was answered before its request was whole waits for the rest until the next sweep.
        """
        if self.core.streams:
            assert set(self.core.streams) == self.core.unfinished
            self.pass_time(1)
        assert not self.core.streams
        assert not self.core.unfinished
        assert self.core.waiting_bytes == 0
        assert self.service.partial_bytes == 0
        assert not self.service.partial_calls
        assert len(self.service.deadlines) == 0

    def lose(self) -> None:
        """The transport is gone."""
        if not self.connection.lost:
            self.connection.connection_lost(None)


class Peer(Side):
    """A client that speaks through ``h2``.

    Attributes:
        grants: gives data back to the server's windows as soon as it came.
        chunk: how many bytes are delivered at a time; None for all.
        terminated: codes of the GOAWAY frames that came.
    """

    def __init__(self, *args: Any, grants: bool = True, chunk: int | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.grants = grants
        self.chunk = chunk
        self.answers: dict[int, Answer] = {}
        self.events: list[Event] = []
        self.terminated: list[int] = []
        self.h2.initiate_connection()

    def call(self, path: str, *more: tuple[str, str], body: bytes | None = None, end: bool = False) -> int:
        """Open a call; with ``body`` its only message is sent and the request ended."""
        stream_id = self.h2.get_next_available_stream_id()
        self.answers[stream_id] = Answer()
        self.h2.send_headers(stream_id, call_headers(path, *more), end_stream=end)
        if body is not None:
            self.data(stream_id, message(body), end=True)
        else:
            self.push()
        return stream_id

    def data(
        self, stream_id: int, data: bytes, end: bool = False, size: int | None = None, pad: int | None = None
    ) -> None:
        """Send data in frames of at most ``size`` bytes, as the windows allow."""
        size = size or self.h2.max_outbound_frame_size
        position = 0
        while position < len(data) or (end and not data):
            self.push()
            overhead = 0 if pad is None else pad + 1
            room = min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size) - overhead
            part = data[position : position + max(0, min(size, room))]
            assert part or not data, "the server grants no room"
            position += len(part)
            last = end and position == len(data)
            self.h2.send_data(stream_id, part, end_stream=last, pad_length=pad)
            if not data:
                break
        self.push()

    def push(self) -> None:
        """Deliver what ``h2`` has to send, and take what the server wrote at once."""
        while data := self.h2.data_to_send():
            self.deliver(data, self.chunk)
            self.pull()

    def pull(self) -> None:
        """Take what the server has written."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        for event in self.h2.receive_data(data):
            self._note(event)
        for data in iter(self.h2.data_to_send, b""):
            self.deliver(data, self.chunk)

    def _note(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case ResponseReceived() | InformationalResponseReceived():
                self.answers[event.stream_id].headers = _merged(event.headers)
            case TrailersReceived():
                self.answers[event.stream_id].trailers = _merged(event.headers)
            case DataReceived():
                self.answers[event.stream_id].data += event.data
                if self.grants:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case StreamEnded():
                self.answers[event.stream_id].ended = True
            case StreamReset():
                self.answers[event.stream_id].reset = int(event.error_code)
            case ConnectionTerminated():
                self.terminated.append(int(event.error_code))

    async def settle(self) -> None:
        """Until both sides have nothing more to say."""
        quiet = 0
        while quiet < 3:
            await asyncio.sleep(0)
            busy = bool(self.transport.written)
            self.pull()
            self.push()
            quiet = 0 if busy else quiet + 1

    async def answer(self, stream_id: int) -> Answer:
        """Wait for the end of an answer."""
        answer = self.answers[stream_id]
        async with asyncio.timeout(WAIT_S):
            while not answer.ended and answer.reset is None:
                await asyncio.sleep(0)
                self.pull()
                self.push()
        return answer

    async def ask(self, path: str, body: bytes, *more: tuple[str, str]) -> Answer:
        """A whole unary call."""
        return await self.answer(self.call(path, *more, body=body))

    async def works(self) -> None:
        """The connection still serves."""
        answer = await self.ask("/Echo", b"still there?")
        assert (answer.status, answer.messages) == (0, [b"still there?"])


def _merged(headers: Iterable[tuple[Any, Any]]) -> dict[str, str]:
    found = dict(headers)
    assert len(found) == len(list(headers)), f"a field came twice: {headers}"
    return found


@dataclass
class Written:
    """A frame that the server wrote: type by its name, without the suffix ``Frame``."""

    kind: str
    stream_id: int
    flags: frozenset[str]
    frame: Any


class RawPeer(Side):
    """A client that writes what it likes. The server's frames are kept in ``frames``."""

    def __init__(self, *args: Any, start: bytes = START, **more: Any) -> None:
        super().__init__(*args, **more)
        self.frames: list[Written] = []
        self.decoder = hpack.Decoder()
        self.rest = b""
        if start:
            self.deliver(start)
            self.read()

    def send(self, data: bytes, chunk: int | None = None, ahead: int | None = None) -> list[Written]:
        """Deliver bytes; gives back the frames that the server wrote meanwhile."""
        before = len(self.frames)
        self.deliver(data, chunk, ahead)
        return self.read()[before:]

    def read(self) -> list[Written]:
        """All frames that the server has written so far."""
        raw = self.rest + bytes(self.transport.written)
        self.transport.written.clear()
        position = 0
        while len(raw) - position >= 9:
            found, size = Frame.parse_frame_header(memoryview(raw)[position : position + 9])
            if len(raw) - position - 9 < size:
                break
            found.parse_body(memoryview(raw)[position + 9 : position + 9 + size])
            position += 9 + size
            flags = frozenset(str(flag) for flag in found.flags)
            self.frames.append(Written(type(found).__name__.removesuffix("Frame"), found.stream_id, flags, found))
        self.rest = raw[position:]
        return self.frames

    async def read_all(self) -> list[Written]:
        await self.turn()
        return self.read()

    def of(self, kind: str, stream_id: int | None = None) -> list[Any]:
        """The server's frames of one type, as ``hyperframe`` has them."""
        return [w.frame for w in self.read() if w.kind == kind and stream_id in (None, w.stream_id)]

    def open(self, stream_id: int, path: str = "/Later", flags: int = 4, more: Sequence[tuple[str, str]] = ()) -> bytes:
        """The frame that opens a call."""
        return frame(1, flags, stream_id, plain_block(call_headers(path, *more)))

    def unary(self, stream_id: int = 1, body: bytes = b"x", path: str = "/Later") -> bytes:
        """The frames of a whole call with one message."""
        return self.open(stream_id, path) + data_frame(stream_id, message(body), True)

    def status(self, stream_id: int) -> tuple[int, str]:
        """Code and text of the end of an answer. Header blocks are decoded in their order, all of them."""
        decoder, found = hpack.Decoder(), {}
        for written in self.read():
            if written.kind == "Headers":
                fields = dict(decoder.decode(written.frame.data))
                if written.stream_id == stream_id:
                    found.update(fields)
        return int(found["grpc-status"]), found.get("grpc-message", "")

    def serves(self, stream_id: int) -> bool:
        """A call on ``stream_id`` is answered."""
        self.send(self.open(stream_id, "/Echo") + frame(0, 1, stream_id, message(b"ok")))
        data = b"".join(bytes(one.data) for one in self.of("Data", stream_id))
        return data == message(b"ok") and self.status(stream_id)[0] == 0


# Ways in which a call on stream 1 is given up


def reset(peer: RawPeer) -> None:
    peer.send(frame(RST, 0, 1, b"\0\0\0\x08"))


def protocol_error(peer: RawPeer) -> None:
    peer.send(frame(PING, 0, 1, b"12345678"))


def stream_error(peer: RawPeer) -> None:
    peer.send(frame(WINDOW, 0, 1, b"\0\0\0\0"))


def deadline(peer: RawPeer) -> None:
    peer.clock.advance(3601 * SECOND_NS)
    peer.service.deadlines.expire()


def lost(peer: RawPeer) -> None:
    peer.lose()


ENDINGS: list[Callable[[RawPeer], None]] = [reset, protocol_error, stream_error, deadline, lost]
HOUR = [("grpc-timeout", "1H")]
