"""Odd but legal ways to send a request: each means the same as the plain one."""

from __future__ import annotations

import struct
from collections.abc import Callable

import hpack
import pytest

from support.h2_frames import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    RST,
    SETTINGS,
    START,
    WINDOW,
    call_headers,
    frame,
    message,
    numbered,
    plain_block,
)
from support.h2_peer import Peer, RawPeer, run

BLOCK = plain_block(call_headers("/Echo"))
BODY = numbered(50)
RAW = message(BODY)
OPEN = frame(HEADERS, 4, 1, BLOCK)
END = frame(DATA, 1, 1)
PRIO = struct.pack(">IB", 0x80000000 | 1, 200)


def one_byte_frames() -> bytes:
    return b"".join(frame(DATA, 0, 1, RAW[i : i + 1]) for i in range(len(RAW)))


WAYS: dict[str, bytes] = {
    "plain": OPEN + frame(DATA, 1, 1, RAW),
    "END_STREAM on empty DATA": OPEN + frame(DATA, 0, 1, RAW) + END,
    "one byte per frame": OPEN + one_byte_frames() + END,
    "empty DATA between": OPEN
    + frame(DATA, 0, 1)
    + frame(DATA, 0, 1, RAW[:3])
    + frame(DATA, 0, 1) * 3
    + frame(DATA, 1, 1, RAW[3:]),
    "padded DATA": OPEN + frame(DATA, 1 | 8, 1, b"\x07" + RAW + b"\0" * 7),
    "padding of no bytes": OPEN + frame(DATA, 1 | 8, 1, b"\0" + RAW),
    "much padding in parts": OPEN
    + b"".join(frame(DATA, 8, 1, b"\xff" + RAW[i : i + 7] + b"\0" * 255) for i in range(0, len(RAW), 7))
    + END,
    "only padding, then the end": OPEN + frame(DATA, 0, 1, RAW) + frame(DATA, 1 | 8, 1, b"\x05" + b"\0" * 5),
    "padding that is not zero": OPEN + frame(DATA, 1 | 8, 1, b"\x07" + RAW + b"\xff" * 7),
    "padded HEADERS": frame(HEADERS, 4 | 8, 1, b"\x09" + BLOCK + b"\0" * 9) + frame(DATA, 1, 1, RAW),
    "HEADERS with a priority": frame(HEADERS, 4 | 0x20, 1, PRIO + BLOCK) + frame(DATA, 1, 1, RAW),
    "both": frame(HEADERS, 4 | 8 | 0x20, 1, b"\x03" + PRIO + BLOCK + b"\0" * 3) + frame(DATA, 1, 1, RAW),
    "PRIORITY before and behind": frame(PRIORITY, 0, 1, PRIO)
    + OPEN
    + frame(PRIORITY, 0, 1, PRIO)
    + frame(DATA, 1, 1, RAW)
    + frame(PRIORITY, 0, 1, PRIO),
    "PRIORITY of a stream on itself": frame(PRIORITY, 0, 3, PRIO) + OPEN + frame(DATA, 1, 1, RAW),
    "CONTINUATION": frame(HEADERS, 0, 1, BLOCK[:5])
    + frame(CONTINUATION, 0, 1, BLOCK[5:6])
    + frame(CONTINUATION, 4, 1, BLOCK[6:])
    + frame(DATA, 1, 1, RAW),
    "empty CONTINUATION": frame(HEADERS, 0, 1)
    + frame(CONTINUATION, 0, 1)
    + frame(CONTINUATION, 0, 1, BLOCK)
    + frame(CONTINUATION, 4, 1)
    + frame(DATA, 1, 1, RAW),
    "CONTINUATION behind padding and priority": frame(HEADERS, 8 | 0x20, 1, b"\x02" + PRIO + BLOCK[:9] + b"\0\0")
    + frame(CONTINUATION, 4, 1, BLOCK[9:])
    + frame(DATA, 1, 1, RAW),
    "unknown flags": frame(HEADERS, 4 | 0xD2, 1, BLOCK) + frame(DATA, 1 | 0xF6, 1, RAW),
    "the reserved bit": frame(HEADERS, 4, 1 | 1 << 31, BLOCK) + frame(DATA, 1, 1 | 1 << 31, RAW),
    "the reserved bit later": OPEN + frame(DATA, 0, 1, RAW[:9]) + frame(DATA, 1, 1 | 1 << 31, RAW[9:]),
    "a high number": frame(HEADERS, 4, 2**31 - 1, BLOCK) + frame(DATA, 1, 2**31 - 1, RAW),
    "unknown frames between": frame(99, 255, 0, b"x" * 20)
    + OPEN
    + frame(10, 1, 1)
    + frame(DATA, 1, 1, RAW)
    + frame(255, 7, 12, b"y"),
    "a large unknown frame": frame(99, 0, 0, b"\0\0\0\4\4" * 100_000)
    + OPEN
    + frame(DATA, 0, 1, RAW[:7])
    + frame(99, 0, 1, b"z" * 400_000)
    + frame(DATA, 1, 1, RAW[7:]),
    "PING between": OPEN
    + frame(PING, 0, 0, b"12345678")
    + frame(DATA, 0, 1, RAW[:4])
    + frame(PING, 1, 0, b"87654321")
    + frame(DATA, 1, 1, RAW[4:]),
    "unknown settings": frame(SETTINGS, 0, 0, struct.pack(">HIHI", 0x99, 7, 0, 1 << 31))
    + OPEN
    + frame(DATA, 1, 1, RAW),
    "SETTINGS between": OPEN
    + frame(SETTINGS, 0, 0)
    + frame(DATA, 0, 1, RAW[:6])
    + frame(SETTINGS, 1, 0)
    + frame(DATA, 1, 1, RAW[6:]),
    "every setting at once": frame(
        SETTINGS, 0, 0, struct.pack(">HIHIHIHIHI", 2, 0, 3, 100, 4, 70_000, 5, 20_000, 6, 9000)
    )
    + OPEN
    + frame(DATA, 1, 1, RAW),
    "trailers": OPEN + frame(DATA, 0, 1, RAW) + frame(HEADERS, 5, 1, plain_block([("x-sum", "1")])),
    "empty trailers": OPEN + frame(DATA, 0, 1, RAW) + frame(HEADERS, 5, 1),
    "trailers in CONTINUATION": OPEN
    + frame(DATA, 0, 1, RAW)
    + frame(HEADERS, 1, 1, b"")
    + frame(CONTINUATION, 4, 1, plain_block([("x", "1")])),
    "WINDOW_UPDATE between": OPEN
    + frame(WINDOW, 0, 1, b"\0\0\0\1")
    + frame(DATA, 0, 1, RAW[:2])
    + frame(WINDOW, 0, 0, b"\0\0\0\1")
    + frame(DATA, 1, 1, RAW[2:]),
    "WINDOW_UPDATE with the reserved bit": OPEN + frame(WINDOW, 0, 1, b"\x80\0\0\1") + frame(DATA, 1, 1, RAW),
    "WINDOW_UPDATE behind the answer": OPEN + frame(DATA, 1, 1, RAW) + frame(WINDOW, 0, 1, b"\0\0\0\x05"),
    "RST_STREAM of another stream": OPEN
    + frame(HEADERS, 4, 3, BLOCK)
    + frame(RST, 0, 3, b"\0\0\0\x08")
    + frame(DATA, 1, 1, RAW),
    "GOAWAY of the client": frame(GOAWAY, 0, 0, b"\0" * 8)
    + OPEN
    + frame(GOAWAY, 0, 0, b"\0" * 8 + b"debug")
    + frame(DATA, 1, 1, RAW),
}


@pytest.mark.parametrize("method", ["/Echo", "/Talk"])
@pytest.mark.parametrize("chunk", [None, 1, 7, 13], ids=lambda chunk: f"by {chunk}")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_means_the_same(way: str, chunk: int | None, method: str) -> None:
    async def test() -> None:
        peer = RawPeer()
        sent = WAYS[way].replace(b"/Echo", method.encode())
        if chunk is not None and len(sent) > 100_000:
            peer.send(sent, chunk * 10_000 + 1)
        else:
            peer.send(sent, chunk)
        await peer.turn()
        assert peer.of("GoAway") == []
        if method == "/Echo":
            assert peer.application.seen == [("/Echo", BODY)]
        else:
            assert peer.application.conversations[0].messages == [BODY]
        stream_id = 2**31 - 1 if way == "a high number" else 1
        assert b"".join(bytes(one.data) for one in peer.of("Data", stream_id)) == RAW
        assert peer.status(stream_id) == (0, "")
        assert not peer.core.streams
        assert not peer.core.is_within_frame
        assert peer.service.partial_bytes == 0
        assert not peer.service.partial_calls
        if stream_id == 1:
            assert peer.serves(7)

    run(test())


def test_messages_cut_anywhere_and_several_in_one_frame() -> None:
    bodies = [b"", b"a", b"", numbered(100), b"", numbered(7), b"end"]
    raw = b"".join(map(message, bodies))
    for size in (1, 2, 3, 4, 5, 6, 7, 11, 50, len(raw)):

        async def test(size: int = size) -> None:
            peer = Peer()
            stream_id = peer.call("/Talk")
            peer.data(stream_id, raw, size=size, end=True)
            answer = await peer.answer(stream_id)
            assert answer.messages == bodies
            assert answer.status == 0
            assert peer.application.conversations[0].messages == bodies

        run(test())


@pytest.mark.parametrize("chunk", [None, 1 << 14, 100_003], ids=lambda chunk: f"by {chunk}")
@pytest.mark.parametrize("size", [4095, 4096, 1 << 14, 50_001])
def test_large_messages_in_many_frames_of_one_size(size: int, chunk: int | None) -> None:
    bodies = [numbered(400_000), numbered(30_001), b"short", numbered(300_000)]
    raw = b"".join(map(message, bodies))
    cuts = range(0, len(raw), size)

    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Listen") + peer.open(3, "/Listen"), chunk)
        # Five frames of a stream, then five of the other one.
        for begin in range(0, len(cuts), 5):
            parts = [raw[at : at + size] for at in cuts[begin : begin + 5]]
            peer.send(b"".join(frame(DATA, 0, stream_id, part) for stream_id in (1, 3) for part in parts), chunk)
            assert peer.service.partial_bytes <= 2 * (begin + 5) * size
        peer.send(frame(DATA, 1, 1) + frame(DATA, 1, 3), chunk)
        await peer.turn()
        first, second = peer.application.conversations
        assert first.messages == second.messages == bodies
        assert first.ended and second.ended
        assert peer.service.partial_bytes == 0
        assert not peer.core.is_within_frame

    run(test())


def test_streams_that_interleave_do_not_mix() -> None:
    async def test() -> None:
        peer = Peer()
        raws = {peer.call("/Talk"): message(numbered(1000)[i:]) * 2 for i in range(20)}
        for position in range(0, 2100, 17):
            for stream_id, raw in raws.items():
                if part := raw[position : position + 17]:
                    peer.data(stream_id, part)
        for stream_id in raws:
            peer.data(stream_id, b"", end=True)
        for stream_id, raw in raws.items():
            answer = await peer.answer(stream_id)
            assert bytes(answer.data) == raw
            assert answer.status == 0

    run(test())


def test_header_blocks_of_interleaved_streams_use_one_table() -> None:
    async def test() -> None:
        peer = RawPeer()
        encoder = hpack.Encoder()
        for i in range(60):
            if i % 7 == 3:
                encoder.header_table_size = (4096, 0, 100, 1000)[i % 4]
            more = [("x-a", str(i % 3)), (f"x-{i % 5}", "v" * (i % 40)), ("grpc-timeout", f"{i + 1}H")]
            block = encoder.encode(call_headers("/Later", *more))
            peer.send(frame(HEADERS, 4, 2 * i + 1, block) + frame(DATA, 1, 2 * i + 1, RAW))
            metadata = peer.application.waiting[i].call.metadata
            assert {name: metadata[name] for name, _ in more} == dict(more)

    run(test())


def test_pings_are_echoed_and_answers_to_pings_are_not() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(frame(PING, 0, 0, b"01234567") + frame(PING, 1, 0, b"76543210"))
        (pong,) = peer.of("Ping")
        assert pong.opaque_data == b"01234567"
        assert pong.flags == {"ACK"}

    run(test())


def test_each_settings_frame_is_acknowledged_and_acknowledgements_are_not() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(frame(SETTINGS, 0, 0) * 3 + frame(SETTINGS, 1, 0) * 2)
        assert sum("ACK" in one.flags for one in peer.of("Settings")) == 4

    run(test())


def test_what_the_server_says_first() -> None:
    async def test() -> None:
        peer = RawPeer(start=START[:24])
        first, second = peer.read()
        assert first.kind == "Settings"
        settings = first.frame.settings
        assert settings[3] == 4096
        assert settings[5] >= 16_384
        assert (second.kind, second.stream_id) == ("WindowUpdate", 0)
        assert 65_535 + second.frame.window_increment >= settings[4]

    run(test())


@pytest.mark.parametrize("code", [0, 8, 5, 0xFFFFFFFF])
@pytest.mark.parametrize(
    "before",
    [
        lambda: frame(HEADERS, 4, 1, plain_block(call_headers("/Later"))),
        lambda: frame(HEADERS, 4, 1, plain_block(call_headers("/Later"))) + frame(DATA, 0, 1, RAW[:20]),
        lambda: frame(HEADERS, 4, 1, plain_block(call_headers("/Later"))) + frame(DATA, 0, 1, RAW),
        lambda: frame(HEADERS, 4, 1, plain_block(call_headers("/Later"))) + frame(DATA, 1, 1, RAW),
        lambda: frame(HEADERS, 4, 1, plain_block(call_headers("/Listen"))) + frame(DATA, 0, 1, RAW + RAW[:3]),
        lambda: frame(HEADERS, 4, 1, plain_block(call_headers("/Listen"))) + END,
        lambda: frame(HEADERS, 4, 1, plain_block(call_headers("/Big"))) + frame(DATA, 1, 1, message(b"500000")),
        lambda: frame(HEADERS, 4, 1, plain_block(call_headers("/Nothing"))) + frame(DATA, 0, 1, RAW[:3]),
        lambda: frame(HEADERS, 4, 1, plain_block(call_headers("/Fail"))) + frame(DATA, 1, 1, RAW),
    ],
)
def test_a_reset_in_every_state_gives_the_call_up(before: Callable[[], bytes], code: int) -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(before())
        peer.send(frame(RST, 0, 1, struct.pack(">I", code)))
        assert not peer.core.streams
        assert peer.core.waiting_bytes == 0
        assert peer.service.partial_bytes == 0
        for waiting in peer.application.waiting:
            assert waiting.owner.cancelled == 1
            waiting.call.reply((b"late",), 4)
            waiting.call.finish(3, "late")
        for conversation in peer.application.conversations:
            assert conversation.cancelled == 1
            conversation.call.send((b"late",), 4)
            conversation.call.resume()
        quiet = len(peer.read())
        assert len(await peer.read_all()) == quiet
        assert peer.of("GoAway") == []
        peer.send(frame(WINDOW, 0, 0, struct.pack(">I", 65_535)))
        assert peer.serves(3)

    run(test())


def test_a_goaway_of_the_client_does_not_end_its_calls() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1) + frame(DATA, 1, 1, RAW) + frame(GOAWAY, 0, 0, struct.pack(">II", 0, 2)))
        peer.application.waiting[0].call.reply((b"x",), 1)
        await peer.read_all()
        assert peer.status(1) == (0, "")
        assert not peer.transport.closing

    run(test())


def test_many_calls_in_one_piece() -> None:
    async def test() -> None:
        peer = RawPeer()
        raw = b"".join(
            frame(HEADERS, 4, i, BLOCK) + frame(DATA, 1, i, message(str(i).encode())) for i in range(1, 4000, 2)
        )
        peer.send(raw)
        assert peer.application.seen == [("/Echo", str(i).encode()) for i in range(1, 4000, 2)]
        assert len(peer.of("Data")) == 2000

    run(test())
