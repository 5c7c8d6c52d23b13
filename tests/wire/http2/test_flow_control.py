"""Windows in both directions: the peer raises when more is sent than it allowed, and all data arrives in order."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.wire.http2.incoming_limits import CONNECTION_WINDOW, STREAM_WINDOW
from naiad.wire.http2.outbound import OutboundQueue
from naiad.wire.http2.stream import Stream
from support.h2_frames import DATA, HEADERS, SETTINGS, WINDOW, frame, message, numbered
from support.h2_peer import Peer, RawPeer, run


def growth(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW, 0, stream_id, struct.pack(">I", increment))


def initial_window(size: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", 4, size))


def received(peer: RawPeer, stream_id: int) -> bytes:
    return b"".join(bytes(one.data) for one in peer.of("Data", stream_id))


# Answers


def test_an_answer_through_a_window_of_one_byte() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(initial_window(0) + peer.open(1, "/Big") + frame(DATA, 1, 1, message(b"40")))
        expected = message(numbered(40))
        assert received(peer, 1) == b""
        for i in range(len(expected)):
            assert received(peer, 1) == expected[:i]
            assert 1 in peer.core.streams
            peer.send(growth(1, 1))
        assert received(peer, 1) == expected
        assert peer.status(1) == (0, "")
        assert not peer.core.streams

    run(test())


def test_a_connection_window_that_opens_byte_by_byte_is_shared() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Big") + frame(DATA, 1, 1, message(str(65_535 - 5).encode())))
        for stream_id in (3, 5, 7):
            peer.send(peer.open(stream_id, "/Big") + frame(DATA, 1, stream_id, message(b"30")))
        assert len(received(peer, 1)) == 65_535
        assert [received(peer, i) for i in (3, 5, 7)] == [b""] * 3
        for _ in range(3 * 35):
            before = sum(len(received(peer, i)) for i in (3, 5, 7))
            peer.send(growth(0, 1))
            assert sum(len(received(peer, i)) for i in (3, 5, 7)) == before + 1
        for i in (3, 5, 7):
            assert received(peer, i) == message(numbered(30))
            assert peer.status(i) == (0, "")

    run(test())


def test_a_window_that_becomes_negative_in_the_middle_of_an_answer() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(growth(0, 1 << 20) + peer.open(1, "/Big") + frame(DATA, 1, 1, message(b"100000")))
        expected = message(numbered(100_000))
        assert received(peer, 1) == expected[:65_535]
        peer.send(initial_window(5000))
        # It is at 5000 - 65535 now.
        peer.send(growth(1, 60_535))
        assert received(peer, 1) == expected[:65_535]
        peer.send(growth(1, 1))
        assert received(peer, 1) == expected[:65_536]
        peer.send(initial_window(5001))
        assert received(peer, 1) == expected[:65_537]
        peer.send(initial_window(65_535))
        assert received(peer, 1) == expected
        assert peer.status(1) == (0, "")

    run(test())


def test_settings_open_the_windows_of_all_open_streams() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(initial_window(0) + growth(0, 1 << 20))
        for i in range(1, 21, 2):
            peer.send(peer.open(i, "/Big") + frame(DATA, 1, i, message(b"1000")))
        peer.send(initial_window(10))
        assert [len(received(peer, i)) for i in range(1, 21, 2)] == [10] * 10
        peer.send(initial_window(2000))
        assert [received(peer, i) for i in range(1, 21, 2)] == [message(numbered(1000))] * 10

    run(test())


def test_frames_are_as_large_as_the_peer_takes_and_no_larger() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(growth(0, 1 << 24) + initial_window(1 << 24))
        peer.send(peer.open(1, "/Big") + frame(DATA, 1, 1, message(b"100000")))
        assert max(len(one.data) for one in peer.of("Data", 1)) == 16_384
        peer.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 5, 50_000)))
        peer.send(peer.open(3, "/Big") + frame(DATA, 1, 3, message(b"100000")))
        assert max(len(one.data) for one in peer.of("Data", 3)) == 50_000
        peer.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 5, 16_384)))
        peer.send(peer.open(5, "/Big") + frame(DATA, 1, 5, message(b"16379")))
        peer.send(peer.open(7, "/Big") + frame(DATA, 1, 7, message(b"16380")))
        assert [len(one.data) for one in peer.of("Data", 5)] == [16_384]
        assert [len(one.data) for one in peer.of("Data", 7)] == [16_384, 1]
        for i, size in ((1, 100_000), (3, 100_000), (5, 16_379), (7, 16_380)):
            assert received(peer, i) == message(numbered(size))

    run(test())


@pytest.mark.parametrize("window", [0, 1, 5, 6, 100, 20_000])
def test_small_answers_wait_for_room_too(window: int) -> None:
    async def test() -> None:
        peer = Peer(grants=True)
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        peer.push()
        stream_ids = [peer.call("/Echo", body=b"x" * 100) for _ in range(5)]
        if window == 0:
            for stream_id in stream_ids:
                peer.h2.increment_flow_control_window(105, stream_id)
            peer.push()
        for stream_id in stream_ids:
            while not peer.answers[stream_id].ended:
                await peer.settle()
                if peer.h2.remote_flow_control_window(stream_id) == 0 and not peer.answers[stream_id].ended:
                    peer.h2.increment_flow_control_window(1, stream_id)
            assert peer.answers[stream_id].messages == [b"x" * 100]

    run(test())


def test_a_stalled_stream_does_not_hold_up_the_others() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(growth(0, 1 << 24) + peer.open(1, "/Big") + frame(DATA, 1, 1, message(b"200000")))
        assert len(received(peer, 1)) == 65_535
        for i in range(3, 23, 2):
            assert peer.serves(i)
        peer.send(peer.open(23, "/Big") + frame(DATA, 1, 23, message(b"60000")))
        assert received(peer, 23) == message(numbered(60_000))
        peer.send(growth(1, 1 << 20))
        assert received(peer, 1) == message(numbered(200_000))

    run(test())


def test_large_answers_share_the_connection() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(initial_window(1 << 24))
        for i in (1, 3, 5):
            peer.send(peer.open(i, "/Big") + frame(DATA, 1, i, message(b"1000000")))
        peer.send(growth(0, 900_000))
        sizes = [len(received(peer, i)) for i in (1, 3, 5)]
        assert sum(sizes) == 900_000 + 65_535
        assert min(sizes) > 200_000
        peer.send(growth(0, 1 << 24))
        await peer.turn()
        assert [received(peer, i) for i in (1, 3, 5)] == [message(numbered(1_000_000))] * 3

    run(test())


@pytest.mark.slow
def test_a_transport_that_is_full_gets_no_more() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(growth(0, 1 << 28) + initial_window(1 << 28))
        peer.connection.pause_writing()
        assert not peer.transport.reading
        peer.transport.reading = True
        peer.send(peer.open(1, "/Big") + frame(DATA, 1, 1, message(b"20000000")))
        assert received(peer, 1) == b""
        peer.transport.reading = False
        peer.connection.resume_writing()
        # Four megabytes in each turn of the loop.
        for _ in range(2):
            await peer.turn()
        assert received(peer, 1) == message(numbered(20_000_000))

    run(test())


def test_a_window_that_grows_to_the_limit_and_no_further() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(growth(0, 2**31 - 1 - 65_535) + peer.open(1) + growth(1, 2**31 - 1 - 65_535))
        assert not peer.core.failed
        assert peer.of("RstStream") == []
        peer.send(initial_window(65_534) + growth(1, 1))
        assert peer.of("RstStream") == []
        peer.send(growth(1, 1))
        assert [one.error_code for one in peer.of("RstStream", 1)] == [3]
        peer.send(growth(0, 1))
        assert peer.of("GoAway")[0].error_code == 3

    run(test())


def test_settings_of_the_header_table_are_obeyed() -> None:
    """A decoder with a smaller table wants to hear that it is used so (RFC 7541, section 4.2)."""

    async def test() -> None:
        for size in (0, 100, 4095, 4096, 65_536):
            peer = Peer()
            await peer.works()
            peer.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: size})
            peer.push()
            await peer.settle()
            await peer.works()
            answer = await peer.ask("/Fail", b"")
            assert answer.status == 13
            answer = await peer.ask("/Big", b"100000")
            assert answer.messages == [numbered(100_000)]

    run(test())


# Parts of answers


@pytest.mark.parametrize(
    "part",
    [
        b"abc",
        bytearray(b"abc"),
        memoryview(b"abcdef")[1:4],
        np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        np.array(7, np.int64),
        np.array([True, False]),
        np.array([-1, 5], np.int8),
        np.ones((3, 3), np.float16),
        np.empty(0, np.float32),
        np.empty((0, 4), np.int32),
        np.empty((3, 0, 2), np.uint8),
        np.arange(5, dtype=np.uint8),
        memoryview(np.arange(6, dtype=np.int16)),
    ],
    ids=lambda part: f"{type(part).__name__} {getattr(part, 'shape', '')}",
)
@pytest.mark.parametrize("how", ["reply", "send", "stalled"])
def test_every_kind_of_part_is_sent(part: object, how: str) -> None:
    raw = part.tobytes() if isinstance(part, np.ndarray | memoryview) else bytes(part)  # type: ignore[call-overload]

    async def test() -> None:
        peer = RawPeer()
        if how == "stalled":
            peer.send(initial_window(0))
        peer.send(peer.open(1) + frame(DATA, 1, 1, message(b"")))
        call = peer.application.waiting[0].call
        parts = (b"<", part, b"", part, b">")
        if how == "send":
            call.send(parts, 2 + 2 * len(raw))
            call.finish()
        else:
            call.reply(parts, 2 + 2 * len(raw))
        await peer.turn()
        peer.send(growth(1, 1000))
        assert received(peer, 1) == message(b"<" + raw + raw + b">")
        assert peer.status(1) == (0, "")

    run(test())


# Requests


@pytest.mark.slow
def test_a_stream_gets_room_back_as_it_sends() -> None:
    async def test() -> None:
        peer = Peer()
        stream_id = peer.call("/Echo")
        body = numbered(3 * STREAM_WINDOW)
        peer.data(stream_id, message(body), end=True)
        assert peer.application.seen == [("/Echo", body)]

    run(test())


def test_the_connection_gets_room_back_for_data_in_many_frames_of_one_size() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Listen"))
        raw = message(b"x" * (1 << 20))
        frames = b"".join(frame(DATA, 0, 1, raw[at : at + (1 << 14)]) for at in range(0, len(raw), 1 << 14))
        for _ in range(33):
            peer.send(frames)
        granted = sum(one.window_increment for one in peer.of("WindowUpdate", 0)[1:])
        assert CONNECTION_WINDOW // 2 <= granted <= 33 * len(raw)

    run(test())


def test_the_connection_gets_room_back_whatever_the_data_were_for() -> None:
    async def test() -> None:
        peer = RawPeer()
        piece = frame(DATA, 8, 1, b"\x10" + b"x" * (1 << 20) + b"\0" * 16)
        # Its message is refused at once; the data go on coming, as far as the stream's window allows.
        granted = 0
        sent = 0
        for stream_id in range(1, 41, 2):
            peer.send(peer.open(stream_id))
            for _ in range(7):
                peer.deliver(piece.replace(struct.pack(">I", 1), struct.pack(">I", stream_id), 1))
                sent += (1 << 20) + 17
        granted = sum(one.window_increment for one in peer.of("WindowUpdate", 0)[1:])
        assert sent - granted < CONNECTION_WINDOW
        assert not peer.core.failed

    run(test())


def test_data_beyond_the_window_of_a_stream_is_a_stream_error() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Listen"))
        listening = peer.application.conversations[0]
        listening.call.pause()
        piece = frame(DATA, 0, 1, message(b"x" * (1 << 20)))
        for _ in range(7):
            peer.deliver(piece)
        assert peer.of("RstStream") == []
        assert peer.of("WindowUpdate", 1) == []
        peer.deliver(piece)
        assert [one.error_code for one in peer.of("RstStream", 1)] == [3]
        assert listening.cancelled == 1
        assert peer.serves(3)

    run(test())


@pytest.mark.parametrize("padding", [0, 255])
def test_a_paused_stream_is_granted_nothing_until_it_goes_on(padding: int) -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Listen"))
        listening = peer.application.conversations[0]
        listening.call.pause()
        body = b"x" * 10_000
        sent = 0
        while sent + 11_000 < STREAM_WINDOW:
            raw = bytes((padding,)) + message(body) + b"\0" * padding
            peer.deliver(frame(DATA, 8, 1, raw))
            sent += len(raw)
        assert peer.of("WindowUpdate", 1) == []
        assert listening.messages == []
        listening.call.resume()
        await peer.turn()
        assert sum(one.window_increment for one in peer.of("WindowUpdate", 1)) == sent
        assert set(listening.messages) == {body}
        assert len(listening.messages) == sent // len(raw)

    run(test())


# Invariants


class Recorded(Stream):
    __slots__ = ("drains",)

    def __init__(self, stream_id: int) -> None:
        super().__init__(stream_id)
        self.drains = 0

    def drained(self) -> None:
        self.drains += 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.integers(0, 40)),
        st.tuples(st.just("end"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("window"), st.integers(0, 3), st.integers(1, 60)),
        st.tuples(st.just("connection"), st.just(0), st.integers(1, 60)),
        st.tuples(st.just("initial"), st.just(0), st.integers(0, 60)),
        st.tuples(st.just("frame"), st.just(0), st.integers(1, 30)),
        st.tuples(st.just("drop"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("pump"), st.just(0), st.integers(1, 50)),
    ),
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_never_more_than_the_windows_and_never_less_than_possible(steps: list[tuple[str, int, int]]) -> None:
    outbound = OutboundQueue(lambda: None)
    outbound.window, outbound.initial_window, outbound.frame_bytes = 50, 20, 16
    streams = [Recorded(2 * i + 1) for i in range(4)]
    outbound.streams = {stream.id: stream for stream in streams}
    connection, initial, credit = 50, 20, [0, 0, 0, 0]
    wanted, ended, got, closed = (
        [bytearray() for _ in range(4)],
        [False] * 4,
        [bytearray() for _ in range(4)],
        [False] * 4,
    )
    dropped = [False] * 4
    next_byte = 0

    def take() -> None:
        nonlocal connection
        raw = b"".join(outbound.out)
        outbound.out.clear()
        while raw:
            size, kind, stream_id = int.from_bytes(raw[:3], "big"), raw[3], int.from_bytes(raw[5:9], "big")
            at = stream_id >> 1
            payload, raw = raw[9 : 9 + size], raw[9 + size :]
            assert not dropped[at]
            if kind == DATA:
                assert not closed[at]
                assert 0 < size <= outbound.frame_bytes
                connection -= size
                credit[at] -= size
                assert connection >= 0
                assert initial + credit[at] >= 0
                got[at] += payload
            elif kind == HEADERS:
                assert got[at] == wanted[at]
                closed[at] = True

    for step, at, size in [*steps, ("pump", 0, 10_000)]:
        stream = streams[at]
        if step == "send" and not ended[at] and not dropped[at]:
            body = bytes((next_byte + i) & 255 for i in range(size))
            next_byte += size
            wanted[at] += body
            outbound.send_data(stream, (body[: size // 2], body[size // 2 :]), size) if size else None
        elif step == "end" and not ended[at] and not dropped[at]:
            ended[at] = True
            outbound.end(stream, b"")
        elif step == "window" and stream.id in outbound.streams:
            credit[at] += size
            outbound.grow_stream_window(stream, size)
        elif step == "connection":
            connection += size
            outbound.grow_window(size)
        elif step == "initial":
            initial = size
            outbound.set_initial_window(size)
        elif step == "frame":
            take()
            outbound.frame_bytes = size
        elif step == "drop" and stream.id in outbound.streams:
            take()
            dropped[at] = True
            del outbound.streams[stream.id]
            outbound.drop(stream)
        elif step == "pump":
            while outbound.pump(size):
                take()
        take()
    for at in range(4):
        if dropped[at]:
            continue
        assert wanted[at].startswith(got[at])
        left = len(wanted[at]) - len(got[at])
        if left:
            assert connection <= 0 or initial + credit[at] <= 0
        elif ended[at]:
            assert closed[at]
    assert outbound.waiting_bytes == sum(len(w) - len(g) for w, g, d in zip(wanted, got, dropped, strict=True) if not d)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 200),
    st.lists(st.tuples(st.sampled_from(["/Big", "/Echo", "/Talk"]), st.integers(0, 3000)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 2000)), max_size=40),
    st.integers(1, 400),
)
def test_answers_arrive_whole_and_in_order_whatever_the_windows_do(
    window: int, calls: list[tuple[str, int]], steps: list[tuple[int, int]], chunk: int
) -> None:
    async def test() -> None:
        peer = Peer(grants=False, chunk=chunk)
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        peer.push()
        wanted: dict[int, bytes] = {}
        for path, size in calls:
            body = str(size).encode() if path == "/Big" else numbered(size)
            wanted[peer.call(path, body=body)] = numbered(size)
        for which, amount in steps:
            await peer.settle()
            if which == 0:
                peer.h2.increment_flow_control_window(amount)
            elif which == 1:
                peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: amount})
            else:
                stream_id = list(wanted)[which % len(wanted)]
                if not peer.answers[stream_id].ended:
                    peer.h2.increment_flow_control_window(amount, stream_id)
            peer.push()
        peer.h2.increment_flow_control_window(1 << 20)
        await peer.settle()
        for stream_id, body in wanted.items():
            if not peer.answers[stream_id].ended:
                peer.h2.increment_flow_control_window(1 << 20, stream_id)
            answer = await peer.answer(stream_id)
            assert answer.messages == [body]
            assert answer.status == 0
        assert not peer.core.streams
        assert peer.core.waiting_bytes == 0

    run(test())
