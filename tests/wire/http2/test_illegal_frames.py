"""Every error of RFC 9113 that a client can make: the section, the bytes, and what the server must answer."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest

from support.h2_frames import (
    CONTINUATION,
    DATA,
    EMPTY_SETTINGS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    PUSH,
    RST,
    SETTINGS,
    WINDOW,
    call_headers,
    frame,
    message,
    plain_block,
)
from support.h2_peer import RawPeer, run

END_STREAM, END_HEADERS, PADDED, HAS_PRIORITY = 1, 4, 8, 0x20
PROTOCOL, FLOW, CLOSED, SIZE, REFUSED, COMPRESSION, CALM = 1, 3, 5, 6, 7, 9, 11

BLOCK = plain_block(call_headers("/Later"))
WHOLE = message(b"x")


def opened(stream_id: int, *, ended: bool = False, path: str = "/Later") -> bytes:
    """A call that waits for its message; ``ended``: for its answer."""
    head = frame(HEADERS, END_HEADERS, stream_id, plain_block(call_headers(path)))
    return head + frame(DATA, END_STREAM, stream_id, WHOLE) if ended else head


def setting(key: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", key, value))


def growth(increment: int) -> bytes:
    return struct.pack(">I", increment)


def request(*fields: tuple[str | bytes, str | bytes]) -> bytes:
    """The opening frame of a request with exactly these fields, on stream 1."""
    return frame(HEADERS, END_HEADERS, 1, plain_block(fields))


def with_fields(*more: tuple[str | bytes, str | bytes]) -> bytes:
    return request(*call_headers("/Later"), *more)


def without(name: str) -> bytes:
    return request(*[pair for pair in call_headers("/Later") if pair[0] != name])


@dataclass(frozen=True)
class Case:
    section: str
    what: str
    sent: bytes
    code: int
    start: bytes = PREFACE + EMPTY_SETTINGS


CONNECTION_ERRORS = [
    Case("3.4", "no preface", b"\x00" * 24, PROTOCOL, b""),
    Case("3.4", "a preface with one wrong byte", b"PRI" + b"\0" + PREFACE[4:], PROTOCOL, b""),
    Case("3.4", "text in place of a preface", b"hello", PROTOCOL, b""),
    Case("3.4", "no SETTINGS behind the preface", frame(PING, 0, 0, b"12345678"), PROTOCOL, PREFACE),
    Case("3.4", "a call before SETTINGS", opened(1), PROTOCOL, PREFACE),
    Case("3.4", "an unknown frame before SETTINGS", frame(99, 0, 0, b"?"), PROTOCOL, PREFACE),
    Case("4.1", "a control frame over the limit", frame(SETTINGS, 0, 0, length=(1 << 22) + 6), SIZE),
    Case("4.2", "DATA over SETTINGS_MAX_FRAME_SIZE", opened(1) + frame(DATA, 0, 1, length=(1 << 22) + 1), SIZE),
    Case("4.2", "HEADERS over SETTINGS_MAX_FRAME_SIZE", frame(HEADERS, 4, 1, length=(1 << 24) - 1), SIZE),
    Case("4.2", "an unknown frame over SETTINGS_MAX_FRAME_SIZE", frame(200, 0, 1, length=(1 << 24) - 1), SIZE),
    Case("4.3", "a block of an index that nothing is at", frame(HEADERS, 5, 1, b"\xff\x80\x01"), COMPRESSION),
    Case("4.3", "a block of index 0", frame(HEADERS, 5, 1, b"\x80"), COMPRESSION),
    Case("4.3", "a block that is cut off", frame(HEADERS, 5, 1, BLOCK[:-1]), COMPRESSION),
    Case("4.3", "a block with an endless integer", frame(HEADERS, 5, 1, b"\xff" * 100), COMPRESSION),
    Case("4.3", "a size update above the table's size", frame(HEADERS, 5, 1, b"\x3f\xe2\x1f" + BLOCK), COMPRESSION),
    Case("4.3", "a size update behind a field", frame(HEADERS, 5, 1, BLOCK + b"\x20"), COMPRESSION),
    Case(
        "4.3", "Huffman code that is none", frame(HEADERS, 5, 1, BLOCK + b"\x00\x01x\x84\xff\xff\xff\xff"), COMPRESSION
    ),
    Case("4.3", "bad trailers", opened(1) + frame(HEADERS, 5, 1, b"\x80"), COMPRESSION),
    Case(
        "4.3",
        "a frame of another type within a block",
        frame(HEADERS, 0, 1, BLOCK) + frame(PING, 0, 0, b"12345678"),
        PROTOCOL,
    ),
    Case("4.3", "an unknown frame within a block", frame(HEADERS, 0, 1, BLOCK) + frame(77, 0, 1, b"x"), PROTOCOL),
    Case(
        "4.3", "half an unknown frame within a block", frame(HEADERS, 0, 1, BLOCK) + frame(77, 0, 1, b"x", 10), PROTOCOL
    ),
    Case("4.3", "HEADERS within a block", frame(HEADERS, 0, 1, BLOCK) + frame(HEADERS, 4, 1, BLOCK), PROTOCOL),
    Case("4.3", "DATA within a block", frame(HEADERS, 0, 1, BLOCK) + frame(DATA, 0, 1, WHOLE), PROTOCOL),
    Case("5.1", "DATA on an idle stream", frame(DATA, 1, 1, WHOLE), PROTOCOL),
    Case("5.1", "half of DATA on an idle stream", frame(DATA, 1, 1, WHOLE, 50), PROTOCOL),
    Case("5.1", "RST_STREAM on an idle stream", frame(RST, 0, 1, growth(8)), PROTOCOL),
    Case("5.1", "WINDOW_UPDATE on an idle stream", frame(WINDOW, 0, 1, growth(8)), PROTOCOL),
    Case("5.1", "WINDOW_UPDATE on an even stream", opened(3) + frame(WINDOW, 0, 2, growth(8)), PROTOCOL),
    Case("5.1", "CONTINUATION on an idle stream", frame(CONTINUATION, 4, 1, BLOCK), PROTOCOL),
    Case("5.1", "HEADERS on a closed stream", opened(1, ended=True, path="/Echo") + opened(1), CLOSED),
    Case("5.1", "HEADERS after RST_STREAM", opened(1) + frame(RST, 0, 1, growth(8)) + opened(1), CLOSED),
    Case("5.1.1", "a stream with an even number", frame(HEADERS, 5, 2, BLOCK), PROTOCOL),
    Case("5.1.1", "HEADERS on stream 0", frame(HEADERS, 5, 0, BLOCK), PROTOCOL),
    Case("6.1", "DATA on stream 0", frame(DATA, 0, 0, WHOLE), PROTOCOL),
    Case("6.1", "as much padding as DATA", opened(1) + frame(DATA, PADDED, 1, b"\x05" + b"\0" * 4), PROTOCOL),
    Case("6.1", "more padding than DATA", opened(1) + frame(DATA, PADDED, 1, b"\xff" + b"\0" * 9), PROTOCOL),
    Case("6.1", "the same before it came whole", opened(1) + frame(DATA, PADDED, 1, b"\xff\0\0", 9), PROTOCOL),
    Case("6.1", "the same on a closed stream", opened(1, ended=True) + frame(DATA, PADDED, 1, b"\xff\0\0"), PROTOCOL),
    Case("6.2", "more padding than HEADERS", frame(HEADERS, 4 | PADDED, 1, b"\xf0" + BLOCK[:20]), PROTOCOL),
    Case("6.2", "HEADERS too short for their priority", frame(HEADERS, 4 | HAS_PRIORITY, 1, b"\0\0\0"), SIZE),
    Case("6.3", "PRIORITY on stream 0", frame(PRIORITY, 0, 0, b"\0" * 5), PROTOCOL),
    Case("6.4", "RST_STREAM on stream 0", frame(RST, 0, 0, growth(8)), PROTOCOL),
    Case("6.4", "RST_STREAM of three bytes", opened(1) + frame(RST, 0, 1, b"\0\0\0"), SIZE),
    Case("6.4", "RST_STREAM of five bytes", opened(1) + frame(RST, 0, 1, b"\0" * 5), SIZE),
    Case("6.5", "SETTINGS on a stream", frame(SETTINGS, 0, 1), PROTOCOL),
    Case("6.5", "SETTINGS of five bytes", frame(SETTINGS, 0, 0, b"\0" * 5), SIZE),
    Case("6.5", "an acknowledgement with content", frame(SETTINGS, 1, 0, b"\0" * 6), SIZE),
    Case("6.5.2", "ENABLE_PUSH of 2", setting(2, 2), PROTOCOL),
    Case("6.5.2", "INITIAL_WINDOW_SIZE of 2^31", setting(4, 1 << 31), FLOW),
    Case("6.5.2", "MAX_FRAME_SIZE of 16383", setting(5, 16383), PROTOCOL),
    Case("6.5.2", "MAX_FRAME_SIZE of 2^24", setting(5, 1 << 24), PROTOCOL),
    Case(
        "6.5.2",
        "a bad value among good ones",
        frame(SETTINGS, 0, 0, struct.pack(">HIHIHI", 4, 1, 5, 0, 5, 16384)),
        PROTOCOL,
    ),
    Case("6.6", "PUSH_PROMISE", opened(1) + frame(PUSH, 4, 1, growth(2) + BLOCK), PROTOCOL),
    Case("6.7", "PING on a stream", frame(PING, 0, 1, b"12345678"), PROTOCOL),
    Case("6.7", "PING of seven bytes", frame(PING, 0, 0, b"1234567"), SIZE),
    Case("6.7", "PING of nine bytes", frame(PING, 1, 0, b"123456789"), SIZE),
    Case("6.8", "GOAWAY on a stream", frame(GOAWAY, 0, 1, b"\0" * 8), PROTOCOL),
    Case("6.8", "GOAWAY of seven bytes", frame(GOAWAY, 0, 0, b"\0" * 7), SIZE),
    Case("6.9", "WINDOW_UPDATE of 0 for the connection", frame(WINDOW, 0, 0, growth(0)), PROTOCOL),
    Case("6.9", "WINDOW_UPDATE of three bytes", frame(WINDOW, 0, 0, b"\0\0\0"), SIZE),
    Case("6.9", "WINDOW_UPDATE of five bytes", frame(WINDOW, 0, 0, b"\0\0\0\0\1"), SIZE),
    Case("6.9.1", "the connection's window above 2^31-1", frame(WINDOW, 0, 0, growth(2**31 - 1)), FLOW),
    Case(
        "6.9.2",
        "a stream's window above 2^31-1 by SETTINGS",
        opened(1) + frame(WINDOW, 0, 1, growth(1)) + setting(4, 2**31 - 1),
        FLOW,
    ),
    Case("6.10", "CONTINUATION behind nothing", opened(1) + frame(CONTINUATION, 4, 1, BLOCK), PROTOCOL),
    Case(
        "6.10",
        "CONTINUATION on another stream",
        frame(HEADERS, 0, 1, BLOCK[:9]) + frame(CONTINUATION, 4, 3, BLOCK[9:]),
        PROTOCOL,
    ),
    Case(
        "6.10",
        "CONTINUATION on stream 0",
        frame(HEADERS, 0, 1, BLOCK[:9]) + frame(CONTINUATION, 4, 0, BLOCK[9:]),
        PROTOCOL,
    ),
    Case(
        "6.10",
        "CONTINUATION behind a whole block",
        frame(HEADERS, 4, 1, BLOCK) + frame(CONTINUATION, 4, 1, BLOCK),
        PROTOCOL,
    ),
]

STREAM_ERRORS = [
    Case("5.1", "DATA after the request has ended", opened(1, ended=True) + frame(DATA, 0, 1, WHOLE), CLOSED),
    Case("5.1", "half of DATA after the end", opened(1, ended=True) + frame(DATA, 0, 1, WHOLE, 30) + b"x" * 24, CLOSED),
    Case("5.1", "empty DATA after the end", opened(1, ended=True) + frame(DATA, 1, 1), CLOSED),
    Case("5.1", "HEADERS after the request has ended", opened(1, ended=True) + frame(HEADERS, 5, 1, b""), CLOSED),
    Case("5.1", "DATA after RST_STREAM", opened(1) + frame(RST, 0, 1, growth(8)) + frame(DATA, 0, 1, WHOLE), CLOSED),
    Case("5.1", "DATA on a closed stream", opened(1, ended=True, path="/Echo") + frame(DATA, 0, 1, WHOLE), CLOSED),
    Case("6.3", "PRIORITY of four bytes", opened(1) + frame(PRIORITY, 0, 1, b"\0" * 4), SIZE),
    Case("6.9", "WINDOW_UPDATE of 0", opened(1) + frame(WINDOW, 0, 1, growth(0)), PROTOCOL),
    Case("6.9", "a reserved bit does not make 0 more", opened(1) + frame(WINDOW, 0, 1, growth(1 << 31)), PROTOCOL),
    Case("6.9.1", "a stream's window above 2^31-1", opened(1) + frame(WINDOW, 0, 1, growth(2**31 - 1)), FLOW),
    Case("8.1", "trailers that do not end the request", opened(1) + frame(HEADERS, 4, 1, b""), PROTOCOL),
    Case(
        "8.1",
        "a pseudo-header field in trailers",
        opened(1) + frame(HEADERS, 5, 1, plain_block([(":path", "/")])),
        PROTOCOL,
    ),
    Case("8.2.1", "upper case in trailers", opened(1) + frame(HEADERS, 5, 1, plain_block([("X", "y")])), PROTOCOL),
    Case("8.2.1", "an upper-case name", with_fields(("X-a", "b")), PROTOCOL),
    Case("8.2.1", "an empty name", with_fields(("", "b")), PROTOCOL),
    Case("8.2.1", "a space in a name", with_fields(("x a", "b")), PROTOCOL),
    Case("8.2.1", "a control character in a name", with_fields(("x\x7f", "b")), PROTOCOL),
    Case("8.2.1", "a colon in a name", with_fields(("x:a", "b")), PROTOCOL),
    Case("8.2.1", "a name beyond ASCII", with_fields((b"x\xff", b"b")), PROTOCOL),
    Case("8.2.1", "NUL in a value", with_fields(("x", "a\0b")), PROTOCOL),
    Case("8.2.1", "CR in a value", with_fields(("x", "a\rb")), PROTOCOL),
    Case("8.2.1", "LF in a value", with_fields(("x", "a\nb")), PROTOCOL),
    Case("8.2.1", "LF in a pseudo-header field", request(*call_headers("/a\nb")), PROTOCOL),
    Case("8.2.2", "connection", with_fields(("connection", "close")), PROTOCOL),
    Case("8.2.2", "keep-alive", with_fields(("keep-alive", "5")), PROTOCOL),
    Case("8.2.2", "proxy-connection", with_fields(("proxy-connection", "close")), PROTOCOL),
    Case("8.2.2", "transfer-encoding", with_fields(("transfer-encoding", "chunked")), PROTOCOL),
    Case("8.2.2", "upgrade", with_fields(("upgrade", "h2c")), PROTOCOL),
    Case("8.2.2", "te other than trailers", with_fields(("te", "gzip")), PROTOCOL),
    Case("8.3", "an unknown pseudo-header field", request((":x", "y"), *call_headers("/Later")), PROTOCOL),
    Case("8.3", "a pseudo-header field of answers", request((":status", "200"), *call_headers("/Later")), PROTOCOL),
    Case("8.3", "a pseudo-header field behind others", with_fields((":authority", "b")), PROTOCOL),
    Case("8.3", "a pseudo-header field that comes twice", request((":path", "/"), *call_headers("/Later")), PROTOCOL),
    Case("8.3.1", "no :method", without(":method"), PROTOCOL),
    Case("8.3.1", "no :scheme", without(":scheme"), PROTOCOL),
    Case("8.3.1", "no :path", without(":path"), PROTOCOL),
    Case("8.3.1", "an empty :path", request(*call_headers("")), PROTOCOL),
    Case("8.3.1", "no field at all", frame(HEADERS, 4, 1, b""), PROTOCOL),
    Case(
        "8.5",
        "an extended CONNECT that nobody offered",
        request((":protocol", "websocket"), *call_headers("/Later")),
        PROTOCOL,
    ),
]

CHUNKS = pytest.mark.parametrize("chunk", [None, 1], ids=["at once", "byte by byte"])


def named(case: Case) -> str:
    return f"{case.section} {case.what}"


@CHUNKS
@pytest.mark.parametrize("case", CONNECTION_ERRORS, ids=named)
def test_connection_errors(case: Case, chunk: int | None) -> None:
    async def test() -> None:
        peer = RawPeer(start=case.start)
        peer.send(case.sent, chunk)
        assert peer.core.failed, "the connection goes on"
        (goodbye,) = peer.of("GoAway")
        assert goodbye.error_code == case.code
        assert peer.read()[-1].kind == "GoAway"
        assert not peer.core.streams
        assert all(waiting.owner.cancelled == 1 for waiting in peer.application.waiting)
        # What comes behind is not looked at, and the connection closes even when the peer does not.
        assert peer.send(opened(9, ended=True, path="/Echo")) == []
        assert not peer.application.seen or peer.application.seen == [("/Echo", b"x")]
        peer.pass_time(5)
        assert peer.transport.closing

    run(test())


@CHUNKS
@pytest.mark.parametrize("case", STREAM_ERRORS, ids=named)
def test_stream_errors(case: Case, chunk: int | None) -> None:
    async def test() -> None:
        peer = RawPeer(start=case.start)
        peer.send(case.sent, chunk)
        assert not peer.core.failed, peer.of("GoAway")
        assert [one.error_code for one in peer.of("RstStream", 1)] == [case.code]
        assert 1 not in peer.core.streams
        assert all(waiting.owner.cancelled == 1 for waiting in peer.application.waiting)
        # Other streams go on, those that were open before included.
        assert peer.serves(3)
        peer.lose()
        assert all(waiting.owner.cancelled == 1 for waiting in peer.application.waiting)

    run(test())


def test_a_neighbour_of_a_broken_stream_is_answered() -> None:
    for case in STREAM_ERRORS:

        async def test(case: Case = case) -> None:
            peer = RawPeer()
            peer.send(frame(HEADERS, END_HEADERS, 101, BLOCK))
            moved = bytearray(case.sent)
            # The same on streams 103 instead of 1.
            position = 0
            while position + 9 <= len(moved):
                size = int.from_bytes(moved[position : position + 3], "big")
                moved[position + 8] = 103
                position += 9 + size
            peer.send(bytes(moved))
            peer.send(frame(DATA, END_STREAM, 101, WHOLE))
            found = [waiting for waiting in peer.application.waiting if not waiting.owner.cancelled]
            assert [one.body for one in found] == [b"x"], named(case)
            found[0].call.reply((b"fine",), 4)
            await peer.read_all()
            assert peer.status(101) == (0, "")

        run(test())


def test_an_illegal_frame_of_one_connection_is_nobody_elses_matter() -> None:
    async def test() -> None:
        good = RawPeer()
        good.send(opened(1, ended=True))
        for case in CONNECTION_ERRORS:
            bad = RawPeer(start=case.start, service=good.service, application=good.application)
            bad.send(case.sent)
            assert bad.core.failed
            bad.lose()
        good.application.waiting[0].call.reply((b"ok",), 2)
        await good.turn()
        assert good.status(1) == (0, "")
        assert good.service.connections == {good.connection}
        assert good.service.partial_bytes == 0

    run(test())


@CHUNKS
@pytest.mark.parametrize(
    "sent",
    [
        opened(1) + frame(DATA, PADDED, 1),
        frame(HEADERS, END_HEADERS | PADDED, 1),
        frame(HEADERS, END_HEADERS | PADDED | HAS_PRIORITY, 1, b"\x0a" + b"\0" * 12),
        frame(HEADERS, END_HEADERS | PADDED | HAS_PRIORITY, 1, b"\x01\0"),
    ],
)
def test_a_padded_frame_without_room_for_what_it_must_hold(sent: bytes, chunk: int | None) -> None:
    """Too small (4.2) and too much padding (6.1, 6.2) are both right here."""

    async def test() -> None:
        peer = RawPeer()
        peer.send(sent, chunk)
        assert peer.of("GoAway")[0].error_code in (PROTOCOL, SIZE)

    run(test())


@CHUNKS
def test_http1_on_the_port_is_told_so_and_closed(chunk: int | None) -> None:
    async def test() -> None:
        peer = RawPeer(start=b"")
        peer.send(b"POST /v2/models/a/infer HTTP/1.1\r\nHost: a\r\n\r\n", chunk)
        assert peer.core.failed
        if chunk is None:
            head, _, body = bytes(peer.rest).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 ")
            assert b"Content-Length: %d" % len(body) in head
            assert b"gRPC" in body
        peer.pass_time(5)
        assert peer.transport.closing

    run(test())


@pytest.mark.parametrize("size", [0, 3, 4, 100])
def test_priority_of_a_wrong_size_on_an_idle_stream_sends_no_reset(size: int) -> None:
    """RST_STREAM must not be sent for an idle stream (6.4)."""

    async def test() -> None:
        peer = RawPeer()
        peer.send(frame(PRIORITY, 0, 7, b"\0" * size))
        assert peer.of("RstStream") == []

    run(test())
