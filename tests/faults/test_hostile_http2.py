"""Peers that mean harm on the gRPC port: each is stopped in time with the right code, keeps little memory and little of
the loop's time, and nobody else notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import itertools
import socket
import struct
import time
import tracemalloc
from collections.abc import Iterator

import grpc
import pytest
import uvloop

from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.grpc.server.state import RECEIVE_BYTES
from naiad.wire.http2.control import MAX_CHEAP_FRAMES, MAX_RESETS
from support.event_loops import until
from support.h2_application import Conversation
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
    data_frame,
    frame,
    message,
    numbered,
    plain_block,
)
from support.h2_listener import served
from support.h2_peer import WAIT_S, RawPeer, run

CALM = 11
MEGABYTE = 1 << 20
CANCEL = struct.pack(">I", 8)
BLOCK = plain_block(call_headers("/Later"))


def opening(stream_id: int) -> bytes:
    return frame(HEADERS, 4, stream_id, BLOCK)


def goodbye(peer: RawPeer) -> int | None:
    found = peer.of("GoAway")
    return found[-1].error_code if found else None


@contextlib.contextmanager
def keeps_little(limit: int) -> Iterator[None]:
    """What is done inside leaves no more than ``limit`` bytes behind, as Python counts them."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept <= limit, f"{kept} bytes are kept"


# Floods


FLOODS = {
    "PING": frame(PING, 0, 0, b"12345678"),
    "answers to pings": frame(PING, 1, 0, b"12345678"),
    "SETTINGS": frame(SETTINGS, 0, 0),
    "full SETTINGS": frame(SETTINGS, 0, 0, struct.pack(">HIHI", 4, 1000, 3, 7)),
    "answers to SETTINGS": frame(SETTINGS, 1, 0),
    "PRIORITY": frame(PRIORITY, 0, 1, struct.pack(">IB", 3, 5)),
    "PRIORITY of idle streams": frame(PRIORITY, 0, 99, struct.pack(">IB", 3, 5)),
    "WINDOW_UPDATE": frame(WINDOW, 0, 0, b"\0\0\0\1"),
    "WINDOW_UPDATE of a stream": frame(WINDOW, 0, 1, b"\0\0\0\1"),
    "WINDOW_UPDATE of a closed stream": frame(WINDOW, 0, 3, b"\0\0\0\1"),
    "empty DATA": frame(DATA, 0, 1),
    "padded empty DATA": frame(DATA, 8, 1, b"\x03\0\0\0"),
    "DATA for a closed stream": frame(DATA, 0, 3, b"x"),
    "RST_STREAM of a closed stream": frame(RST, 0, 3, CANCEL),
    "GOAWAY": frame(GOAWAY, 0, 0, b"\0" * 8),
    "unknown frames": frame(99, 0, 0, b"x"),
    "empty unknown frames": frame(10, 255, 1),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_frames_that_carry_nothing(kind: str) -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_ping_strikes=0))
        peer.send(opening(1) + opening(3) + frame(RST, 0, 3, CANCEL))
        piece = FLOODS[kind]
        with keeps_little(2 * MEGABYTE):
            for _ in range(2 * MAX_CHEAP_FRAMES // 1000 + 1):
                peer.deliver(piece * 1000)
                if not peer.core.failed:
                    peer.transport.written.clear()
        assert peer.core.failed
        assert goodbye(peer) == CALM
        assert not peer.core.streams

    run(test())


@pytest.mark.parametrize("kind", ["WINDOW_UPDATE", "SETTINGS", "PING"])
def test_the_same_frames_beside_calls_are_no_flood(kind: str) -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_ping_strikes=0))
        stream_id = 1
        for _ in range(2 * MAX_CHEAP_FRAMES // 10):
            peer.deliver(FLOODS[kind] * 10 + peer.open(stream_id, "/Echo") + data_frame(stream_id, message(b"x"), True))
            peer.transport.written.clear()
            stream_id += 2
        assert not peer.core.failed
        assert len(peer.application.seen) == 2 * MAX_CHEAP_FRAMES // 10

    run(test())


def test_window_updates_of_a_peer_that_takes_a_large_answer_in_small_bites_are_no_flood() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) + frame(WINDOW, 0, 0, b"\0\x7f\0\0"))
        peer.send(peer.open(1, "/Big") + data_frame(1, message(b"40000"), True))
        for _ in range(40_005):
            peer.deliver(frame(WINDOW, 0, 1, b"\0\0\0\1"))
            if not len(peer.transport.written):
                break
            peer.transport.written.clear()
        assert not peer.core.failed

    run(test())


def test_messages_sent_byte_by_byte_are_no_flood() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Echo"))
        raw = message(bytes(40_000))
        for byte in raw[:-1]:
            peer.deliver(data_frame(1, bytes((byte,)), False))
        peer.deliver(data_frame(1, raw[-1:], True))
        assert peer.application.seen == [("/Echo", bytes(40_000))]

    run(test())


@pytest.mark.slow
def test_rapid_reset() -> None:
    """Calls that are given up as soon as they are made (CVE-2023-44487)."""

    async def test() -> None:
        peer = RawPeer()
        stream_id = 1
        with keeps_little(MEGABYTE):
            while not peer.core.failed and stream_id < 6 * MAX_RESETS:
                peer.deliver(
                    opening(stream_id) + data_frame(stream_id, message(b"x"), True) + frame(RST, 0, stream_id, CANCEL)
                )
                assert len(peer.core.streams) <= 1
                waiting = peer.application.waiting.pop()
                assert waiting.owner.cancelled == 1
                stream_id += 2
        assert goodbye(peer) == CALM
        assert stream_id // 2 <= MAX_RESETS + 1

    run(test())


ERRORS = {
    "WINDOW_UPDATE of 0": lambda i: frame(WINDOW, 0, i, b"\0\0\0\0"),
    "a window too large": lambda i: frame(WINDOW, 0, i, b"\x7f\xff\xff\xff"),
    "PRIORITY of a wrong size": lambda i: frame(PRIORITY, 0, i, b"\0"),
    "DATA after the end": lambda i: data_frame(i, b"x", True),
    "HEADERS after the end": lambda i: frame(HEADERS, 5, i),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_calls_that_the_server_is_made_to_reset(kind: str) -> None:
    """The same through errors of the peer (CVE-2025-8671)."""

    async def test() -> None:
        peer = RawPeer()
        stream_id = 1
        while not peer.core.failed and stream_id < 6 * MAX_RESETS:
            peer.deliver(opening(stream_id) + data_frame(stream_id, message(b"x"), True) + ERRORS[kind](stream_id))
            assert len(peer.core.streams) <= 1
            assert peer.application.waiting.pop().owner.cancelled == 1
            stream_id += 2
        assert goodbye(peer) == CALM
        assert stream_id // 2 <= MAX_RESETS + 1

    run(test())


@pytest.mark.slow
def test_calls_given_up_now_and_then_are_no_attack() -> None:
    async def test() -> None:
        peer = RawPeer()
        stream_id = 1
        for _ in range(30):
            for _ in range(900):
                peer.deliver(
                    opening(stream_id) + data_frame(stream_id, message(b"x"), True) + frame(RST, 0, stream_id, CANCEL)
                )
                stream_id += 2
            peer.pass_time(1)
        assert not peer.core.failed
        assert peer.serves(stream_id)

    run(test())


@pytest.mark.slow
def test_streams_beyond_the_limit_cost_nothing_but_their_refusal() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_streams=100))
        with keeps_little(2 * MEGABYTE):
            for stream_id in range(1, 20_001, 2):
                peer.deliver(opening(stream_id))
                assert len(peer.core.streams) <= 100
            peer.transport.written.clear()
        assert len(peer.application.waiting) == 0

    run(test())


@pytest.mark.slow
def test_streams_given_up_while_the_window_is_shut_leave_nothing() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Big") + data_frame(1, message(b"200000"), True))
        stream_id = 3
        with keeps_little(MEGABYTE):
            for _ in range(20):
                for _ in range(500):
                    peer.deliver(peer.open(stream_id, "/Big") + data_frame(stream_id, message(b"10"), True))
                    peer.deliver(frame(RST, 0, stream_id, CANCEL))
                    stream_id += 2
                peer.pass_time(1)
                peer.deliver(frame(WINDOW, 0, 1, b"\0\0\0\1"))
        assert not peer.core.failed
        assert len(peer.core.waiting) < 500

    run(test())


# Header blocks


@pytest.mark.slow
def test_a_block_without_end() -> None:
    """A flood of CONTINUATION (CVE-2024-27316)."""

    async def test() -> None:
        for piece in (b"", b"\x82", b"\x00\x01x\x01y" * 100):
            peer = RawPeer()
            peer.send(frame(HEADERS, 0, 1, b"\x83"))
            with keeps_little(MEGABYTE):
                for _ in range(1000):
                    peer.deliver(frame(CONTINUATION, 0, 1, piece))
            assert goodbye(peer) == CALM

    run(test())


@pytest.mark.parametrize(
    "block",
    [
        b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000 + b"\xbe" * 4000,
        b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000,
        b"\x20" * 30_000,
        b"\x20\x3f\xe1\x1f" * 1000,
        b"\x00\x01x\x00" * 8000,
        b"\x90" * 30_000,
        b"\xff" + b"\x80" * 30_000,
        b"\x40\x83\xff\xff\xff\x83\xff\xff\xff" * 3000,
    ],
    ids=lambda block: f"{block[:4].hex()} of {len(block)}",
)
def test_blocks_that_grow_cost_little(block: bytes) -> None:
    """Small blocks that mean large lists, or much work (CVE-2016-6581)."""

    async def test() -> None:
        peer = RawPeer()
        rounds = 0
        with keeps_little(MEGABYTE):
            began = time.thread_time()
            for stream_id in range(1, 41, 2):
                if not peer.core.failed:
                    peer.deliver(
                        frame(HEADERS, 4, stream_id, BLOCK + block if block[0] & 0xE0 != 0x20 else block + BLOCK)
                    )
                    rounds += 1
            spent_s = time.thread_time() - began
        assert spent_s / rounds < 0.2
        assert peer.core.failed or rounds == 20

    run(test())


@pytest.mark.slow
def test_heads_that_all_differ_are_not_remembered() -> None:
    async def test() -> None:
        peer = RawPeer()
        with keeps_little(2 * MEGABYTE):
            for stream_id in range(1, 4001, 2):
                block = plain_block(call_headers("/Echo", ("x-id", f"{stream_id:0900}")))
                peer.deliver(frame(HEADERS, 4, stream_id, block) + data_frame(stream_id, message(b""), True))
            peer.transport.written.clear()
            peer.application.seen.clear()
        assert not peer.core.failed

    run(test())


# Settings and windows


@pytest.mark.parametrize("entries", [1, 5000])
def test_settings_that_touch_all_streams_cost_little(entries: int) -> None:
    async def test() -> None:
        peer = RawPeer()
        for stream_id in range(1, 8001, 2):
            peer.deliver(opening(stream_id))
        sizes = [struct.pack(">HI", 4, 70_000 + i % 7) for i in range(entries)]
        began = time.thread_time()
        frames = 0
        while not peer.core.failed and frames < 20_000 // entries:
            peer.deliver(frame(SETTINGS, 0, 0, b"".join([*sizes, struct.pack(">HI", 4, 60_000 + frames % 9)])))
            frames += 1
        assert time.thread_time() - began < 1
        if entries == 1:
            assert goodbye(peer) == CALM
            assert frames < MAX_CHEAP_FRAMES / 50

    run(test())


def test_answers_that_nobody_takes_are_dropped_in_time() -> None:
    """Windows are shut, answers wait: the connection ends, and the answers go."""

    async def test() -> None:
        peer = RawPeer(GrpcLimits(unread_s=120))
        # Kept for all tests.
        numbered(1_000_000)
        peer.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
        with keeps_little(MEGABYTE):
            for stream_id in range(1, 101, 2):
                peer.deliver(peer.open(stream_id, "/Big") + data_frame(stream_id, message(b"1000000"), True))
            await peer.turn()
            assert peer.core.waiting_bytes == 50 * 1_000_005
            peer.pass_time(119)
            assert goodbye(peer) is None
            peer.pass_time(11)
            assert goodbye(peer) == CALM
            assert peer.transport.closing
            peer.lose()
            peer.application.conversations.clear()
        assert peer.core.waiting_bytes == 0

    run(test())


# Messages


@pytest.mark.slow
def test_a_zip_bomb_is_refused_and_costs_no_memory() -> None:
    async def test() -> None:
        bomb = message(gzip.compress(bytes(300 * MEGABYTE)), 1)
        peer = RawPeer(GrpcLimits(max_message_bytes=4 * MEGABYTE))
        # The pool keeps the blocks that the messages came in.
        with keeps_little(16 * MEGABYTE):
            for stream_id in range(1, 9, 2):
                peer.send(
                    peer.open(stream_id, "/Echo", more=[("grpc-encoding", "gzip")]) + data_frame(stream_id, bomb, True)
                )
            # The loop is free meanwhile.
            assert peer.serves(101)
            await until(lambda: not peer.core.streams)
            await peer.turn()
            assert [peer.status(stream_id)[0] for stream_id in range(1, 9, 2)] == [8] * 4
            peer.frames.clear()
        assert peer.application.seen == [("/Echo", b"ok")]

    run(test())


def test_lengths_that_are_announced_and_not_sent_take_no_memory() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_streams=1000))
        with keeps_little(4 * MEGABYTE):
            for stream_id in range(1, 2001, 2):
                peer.deliver(opening(stream_id) + data_frame(stream_id, struct.pack(">BI", 0, 2**31 - 1) + b"x", False))
            assert peer.service.partial_bytes == 1000
            # Nor does it go on for ever.
            peer.pass_time(40)
            await peer.turn()
            peer.transport.written.clear()
            peer.lose()
        assert peer.service.partial_bytes == 0

    run(test())


def test_messages_that_are_too_long_are_refused_at_once() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_message_bytes=MEGABYTE))
        for stream_id in range(1, 101, 2):
            peer.deliver(opening(stream_id) + data_frame(stream_id, struct.pack(">BI", 0, MEGABYTE + 1), False))
            peer.deliver(data_frame(stream_id, bytes(100_000), False))
        await peer.turn()
        assert {peer.status(stream_id)[0] for stream_id in range(1, 101, 2)} == {8}
        assert peer.service.partial_bytes == 0
        assert peer.serves(101)

    run(test())


def test_a_stream_of_messages_that_nobody_reads_is_held_at_its_window() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.application.on_message = lambda listening, body: listening.call.pause()
        peer.send(peer.open(1, "/Listen"))
        with keeps_little(9 * MEGABYTE):
            for _ in range(500):
                peer.deliver(data_frame(1, message(bytes(50_000)), False))
        # It was told how much it may send, and sent more.
        assert [one.error_code for one in peer.of("RstStream", 1)] == [3]
        assert peer.service.partial_bytes == 0

    run(test())


@pytest.mark.slow
def test_tiny_messages_for_a_call_that_pauses_cost_little() -> None:
    async def test() -> None:
        peer = RawPeer()
        count = 200_000

        def react(listening: Conversation, body: bytes) -> None:
            listening.messages.clear()
            listening.call.pause()
            peer.connection.call_soon(listening.call.resume)

        peer.application.on_message = react
        peer.send(peer.open(1, "/Listen"))
        raw = message(b"x") * count
        for position in range(0, len(raw), 200_000):
            peer.deliver(data_frame(1, raw[position : position + 200_000], False))
        peer.deliver(data_frame(1, b"", True))
        began = time.thread_time()
        await until(lambda: peer.application.conversations[0].ended)
        assert time.thread_time() - began < 10

    run(test())


# Through sockets: the others do not notice


def test_others_have_a_turn_after_each_full_buffer() -> None:
    """libuv would fill the buffer many times first."""
    byte = data_frame(1, b"x", False)

    async def test() -> None:
        async with served() as (listener, _):
            turns = asyncio.get_running_loop()
            seen = [0]

            def look() -> None:
                seen.append(sum(c.core.data_frames for c in listener.connections) * len(byte))
                turns.call_soon(look)

            turns.call_soon(look)
            with socket.create_connection(("127.0.0.1", listener.port)) as client:
                client.setblocking(False)
                # As much as the kernel takes before the loop looks.
                client.send(START + opening(1) + data_frame(1, message(bytes(1 << 20))[:10], False) + byte * 300_000)
                time.sleep(0.1)
                async with asyncio.timeout(WAIT_S):
                    while seen[-1] < 5 * RECEIVE_BYTES:
                        await asyncio.sleep(0.001)
            # One buffer or, where the order of a turn changes, two.
            assert max(after - before for before, after in itertools.pairwise(seen)) <= 2 * RECEIVE_BYTES

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), WAIT_S))


ATTACKS: dict[str, list[bytes]] = {
    "garbage": [bytes(range(256)) * 100],
    "nothing": [b""],
    "HTTP/1": [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"],
    "half a preface": [START[:10]],
    "half a frame": [START + frame(HEADERS, 4, 1, BLOCK)[:30]],
    "a ping flood": [START, FLOODS["PING"] * 5000],
    "a reset flood": [START, b"".join(opening(i) + frame(RST, 0, i, CANCEL) for i in range(1, 30_001, 2))],
    "many streams": [START, b"".join(map(opening, range(1, 6001, 2)))],
    "messages that never end": [
        START,
        b"".join(opening(i) + data_frame(i, message(bytes(5000))[:3000], False) for i in range(1, 401, 2)),
    ],
    "large answers that nobody reads": [
        START + frame(WINDOW, 0, 0, b"\x70\0\0\0") + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 30))
    ]
    + [
        frame(HEADERS, 4, i, plain_block(call_headers("/Big"))) + data_frame(i, message(b"3000000"), True)
        for i in range(1, 21, 2)
    ],
    "a table bomb": [START + frame(HEADERS, 4, 1, BLOCK + b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000 + b"\xbe" * 4000)],
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("ending", ["reset", "closed"])
def test_a_good_caller_beside_bad_ones(attack: str, ending: str) -> None:
    async def test() -> None:
        async with served() as (listener, application):
            target = f"127.0.0.1:{listener.port}"
            async with grpc.aio.insecure_channel(target) as channel:
                echo = channel.unary_unary("/Echo")
                assert await echo(b"before") == b"before"
                bad = []
                for _ in range(5):
                    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                    bad.append(writer)
                    for piece in ATTACKS[attack]:
                        writer.write(piece)
                        await asyncio.sleep(0)
                for i in range(20):
                    assert await asyncio.wait_for(echo(b"%d" % i), WAIT_S) == b"%d" % i
                for writer in bad:
                    sock = writer.get_extra_info("socket")
                    if ending == "reset":
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        writer.transport.abort()
                    else:
                        writer.close()
                async with asyncio.timeout(WAIT_S):
                    while listener.connection_count > 1:
                        await asyncio.sleep(0.01)
                assert await echo(b"after") == b"after"
            assert all(waiting.owner.cancelled == 1 for waiting in application.waiting)

    asyncio.run(test())
