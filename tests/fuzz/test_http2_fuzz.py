"""Arbitrary bytes and damaged streams on a gRPC connection, cut at arbitrary places: it never raises or hangs, keeps
little, and cuts change nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.frontends.grpc.rpc.call import Body, RpcCall
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from support.cut_bytes import pieces
from support.h2_application import Application
from support.h2_frames import DATA, HEADERS, SETTINGS, START, WINDOW, call_headers, frame, message, numbered
from support.h2_peer import Peer, RawPeer, run

LIMITS = GrpcLimits(max_message_bytes=100_000, max_partial_bytes=300_000, max_streams=20)
PATHS = ["/Echo", "/Talk", "/Later", "/Listen", "/Big", "/Fail", "/None"]


@dataclass(frozen=True)
class Request:
    path: str
    bodies: tuple[bytes, ...]
    sizes: tuple[int, ...]
    padding: int | None


@st.composite
def requests(draw: st.DrawFn) -> Request:
    path = draw(st.sampled_from(PATHS))
    count = draw(st.integers(0, 4)) if path in ("/Talk", "/Listen") else 1
    bodies = [
        draw(st.binary(max_size=20)) * draw(st.sampled_from([1, 1, 20, 3000]))
        if path != "/Big"
        else b"%d" % draw(st.integers(0, 3000))
        for _ in range(count)
    ]
    sizes = draw(st.lists(st.integers(1, 20_000), min_size=1, max_size=4))
    return Request(path, tuple(bodies), tuple(sizes), draw(st.none() | st.integers(0, 255)))


def encoded(items: list[Request], huffman: bool = True) -> bytes:
    """The frames of several calls, one frame of each in turn."""
    encoder = hpack.Encoder()
    queues: list[list[bytes]] = []
    raw = bytearray()
    for at, item in enumerate(items):
        stream_id = 2 * at + 1
        block = encoder.encode(call_headers(item.path, ("x-n", str(at % 3))), huffman=huffman)
        raw += frame(HEADERS, 4, stream_id, block)
        body, position, frames = b"".join(map(message, item.bodies)), 0, []
        while position < len(body):
            size = item.sizes[len(frames) % len(item.sizes)]
            frames.append(
                data_frame(stream_id, body[position : position + size], position + size >= len(body), item.padding)
            )
            position += size
        queues.append(frames or [frame(DATA, 1, stream_id)])
    while any(queues):
        for queue in queues:
            if queue:
                raw += queue.pop(0)
    return bytes(raw)


def data_frame(stream_id: int, part: bytes, end: bool, padding: int | None) -> bytes:
    if padding is None:
        return frame(DATA, int(end), stream_id, part)
    return frame(DATA, 8 | int(end), stream_id, bytes((padding,)) + part + bytes(padding))


@dataclass
class Outcome:
    """What a stream of bytes led to."""

    seen: list[tuple[str, bytes]]
    waiting: list[tuple[bytes, int]]
    conversations: list[tuple[list[bytes], bool, int]]
    answers: dict[int, bytes]
    endings: dict[int, tuple[object, ...]]
    resets: list[tuple[int, int]]
    goodbyes: list[tuple[int, int]]


WINDOWS = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 30)) + frame(WINDOW, 0, 0, struct.pack(">I", 1 << 30))


async def outcome(parts: list[bytes], own_buffer: bool = False) -> Outcome:
    """Deliver bytes behind a proper start; all that can be told from outside."""
    peer = RawPeer(LIMITS, own_buffer=own_buffer, start=START + WINDOWS)
    for part in parts:
        peer.deliver(part)
        assert len(peer.core.unread) <= 40_000
        assert peer.service.partial_bytes <= LIMITS.max_partial_bytes
        assert len(peer.core.streams) <= LIMITS.max_streams
    await peer.turn()
    peer.read()
    decoder, endings = hpack.Decoder(), {}
    answers: dict[int, bytes] = {}
    resets = []
    for written in peer.frames:
        if written.kind == "Headers":
            fields = tuple(decoder.decode(written.frame.data))
            endings[written.stream_id] = (*endings.get(written.stream_id, ()), *fields)
        elif written.kind == "Data":
            answers[written.stream_id] = answers.get(written.stream_id, b"") + written.frame.data
        elif written.kind == "RstStream":
            resets.append((written.stream_id, written.frame.error_code))
    application = peer.application
    found = Outcome(
        application.seen,
        [(waiting.body, waiting.owner.cancelled) for waiting in application.waiting],
        [(one.messages, one.ended, one.cancelled) for one in application.conversations],
        answers,
        endings,
        resets,
        [(one.last_stream_id, one.error_code) for one in peer.of("GoAway")],
    )
    peer.lose()
    assert not peer.core.streams
    assert peer.service.partial_bytes == 0
    assert not peer.service.partial_calls
    assert peer.core.waiting_bytes == 0
    for waiting in application.waiting:
        assert waiting.owner.cancelled == 1
    return found


CUTS = st.lists(st.integers(0, 100_000), max_size=30)
CALLS = st.lists(requests(), max_size=6)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(CALLS, CUTS, st.booleans())
def test_whole_calls_cut_anywhere(items: list[Request], cuts: list[int], own_buffer: bool) -> None:
    raw = encoded(items)

    async def test() -> None:
        found = await outcome(pieces(raw, cuts), own_buffer)
        # Calls end in the order of their last frames.
        expected = sorted(item.bodies[0] for item in items if item.path == "/Echo")
        assert sorted(body for _, body in found.seen) == expected
        assert sorted(body for body, _ in found.waiting) == sorted(
            item.bodies[0] for item in items if item.path == "/Later"
        )
        talks = [item for item in items if item.path in ("/Talk", "/Listen")]
        assert [messages for messages, _, _ in found.conversations] == [list(item.bodies) for item in talks]
        assert all(ended for _, ended, _ in found.conversations)
        for at, item in enumerate(items):
            stream_id = 2 * at + 1
            answer = found.answers.get(stream_id, b"")
            if item.path in ("/Echo", "/Talk"):
                assert answer == b"".join(map(message, item.bodies))
                assert ("grpc-status", "0") in found.endings[stream_id]
            elif item.path == "/Big":
                assert answer == message(numbered(int(item.bodies[0])))
            elif item.path in ("/Fail", "/None"):
                status = "13" if item.path == "/Fail" else "12"
                assert ("grpc-status", status) in found.endings[stream_id]
        assert found.goodbyes == []

    run(test())


def understood(found: Outcome) -> tuple[object, ...]:
    """All but what the server got rid of before an error ended it, and when it told the peer to stop sending.

    A frame that is wrong in two ways may be refused for either.
    """
    resets = sorted({(stream_id, code) for stream_id, code in found.resets if code})
    goodbyes = [(last, bool(code)) for last, code in found.goodbyes]
    return found.seen, found.waiting, found.conversations, resets, goodbyes


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    CALLS,
    st.lists(st.tuples(st.integers(0, 100_000), st.binary(max_size=3)), min_size=1, max_size=3),
    CUTS,
    st.booleans(),
)
def test_cuts_change_nothing_even_in_damaged_streams(
    items: list[Request], damage: list[tuple[int, bytes]], cuts: list[int], own_buffer: bool
) -> None:
    raw = encoded(items)
    for place, replacement in damage:
        at = place % (len(raw) + 1)
        raw = raw[:at] + replacement + raw[at + 1 :]

    async def test() -> None:
        assert understood(await outcome(pieces(raw, cuts), own_buffer)) == understood(await outcome([raw]))

    run(test())


FRAMES = st.builds(
    frame,
    st.integers(0, 11),
    st.integers(0, 255) | st.sampled_from([0, 1, 4, 5, 8, 0x20]),
    st.sampled_from([0, 1, 1, 2, 3, 5, 7, 2**31 - 1, 2**31]),
    st.one_of(
        st.binary(max_size=12),
        st.just(hpack.Encoder().encode(call_headers("/Talk"))),
        st.just(message(b"abc")),
        st.sampled_from([b"\0\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff", b"12345678", b"\0\x04\0\0\0\x05"]),
    ),
)


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(st.lists(FRAMES, max_size=25).map(b"".join), CUTS)
def test_cuts_change_nothing_in_arbitrary_frames(raw: bytes, cuts: list[int]) -> None:
    async def test() -> None:
        assert understood(await outcome(pieces(raw, cuts))) == understood(await outcome([raw]))

    run(test())


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", START[:24], START, START[:10]]), CUTS)
def test_any_bytes_from_the_start(raw: bytes, start: bytes, cuts: list[int]) -> None:
    async def test() -> None:
        results = []
        for parts in ([start + raw], pieces(start + raw, cuts)):
            peer = RawPeer(LIMITS, start=b"")
            for part in parts:
                peer.deliver(part)
            await peer.turn()
            results.append((peer.core.failed, peer.core.settled, len(peer.application.seen)))
            peer.lose()
            assert not peer.core.streams
        assert results[0] == results[1]

    run(test())


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(CALLS, CUTS, st.integers(0, 100_000))
def test_losing_the_peer_anywhere_leaves_nothing(items: list[Request], cuts: list[int], end: int) -> None:
    raw = encoded(items)
    raw = raw[: end % (len(raw) + 1)]

    async def test() -> None:
        await outcome(pieces(raw, cuts))

    run(test())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["/Echo", "/Talk"]), st.binary(max_size=50), st.integers(1, 60)),
        min_size=1,
        max_size=10,
    ),
    st.integers(1, 50),
    st.integers(0, 60),
)
def test_a_peer_of_another_make_is_served_however_it_cuts(
    calls: list[tuple[str, bytes, int]], chunk: int, pad: int
) -> None:
    async def test() -> None:
        peer = Peer(chunk=chunk)
        opened = []
        for path, body, size in calls:
            stream_id = peer.call(path)
            opened.append((stream_id, body))
            peer.data(stream_id, message(body), end=True, size=size, pad=pad)
        for stream_id, body in opened:
            answer = await peer.answer(stream_id)
            assert answer.messages == [body]
            assert answer.status == 0

    run(test())


def test_endless_bytes_are_not_kept() -> None:
    starts = [
        b"",
        START,
        START + frame(DATA, 0, 1, length=0),
        START + frame(HEADERS, 0, 1, b""),
        START + frame(HEADERS, 4, 1, hpack.Encoder().encode(call_headers("/Later"))),
        START + frame(99, 0, 0, length=1 << 22),
    ]
    for start in starts:
        for filler in (b"7", b"\0", b"\xff", b"\0\0\0\4\0"):

            async def test(start: bytes = start, filler: bytes = filler) -> None:
                peer = RawPeer(LIMITS, start=b"")
                peer.deliver(start)
                for _ in range(100):
                    peer.deliver(filler * 50_000)
                await peer.turn()
                assert len(peer.core.unread) <= 40_000
                assert len(peer.transport.written) < 1_000_000
                assert peer.service.partial_bytes <= LIMITS.max_partial_bytes
                assert len(peer.core.streams) <= LIMITS.max_streams

            run(test())


def test_what_the_application_gets_is_its_own() -> None:
    """Messages stay as they are while the buffer is used again."""

    class Keeping(Application):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[Body] = []

        def later(self, call: RpcCall, body: Body) -> None:
            self.kept.append(body)

    async def test() -> None:
        application = Keeping()
        peer = RawPeer(application=application)
        for i in range(1, 41, 2):
            peer.send(peer.open(i) + frame(DATA, 1, i, message(numbered(50 + i))))
        assert [bytes(body) for body in application.kept] == [numbered(50 + i) for i in range(1, 41, 2)]

    run(test())
