"""Large messages in small frames, which are read into the message ahead of the transport: nothing is lost or mixed up,
wherever the reads end and whatever comes between the frames.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import struct
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.wire.http2.receive_buffer import MAX_SCATTERED
from support.certificates import new_authority
from support.event_loops import until
from support.h2_frames import DATA, HEADERS, PING, RST, START, call_headers, frame, message, numbered, plain_block
from support.h2_listener import served
from support.h2_peer import WAIT_S, RawPeer, run

KIB = 1 << 10
FRAME = 16 * KIB
TALK = frame(HEADERS, 4, 1, plain_block(call_headers("/Listen")))


def frames(raw: bytes, size: int = FRAME, stream_id: int = 1) -> list[bytes]:
    """DATA frames of ``size`` bytes, the last of which has what is left."""
    return [frame(DATA, 0, stream_id, raw[at : at + size]) for at in range(0, len(raw), size)]


@pytest.mark.parametrize("ahead", [1, 5, 9, 100, FRAME, FRAME + 9, 100_003, 1 << 20])
@pytest.mark.parametrize("chunk", [None, FRAME, 777])
def test_reads_may_end_anywhere(ahead: int, chunk: int | None) -> None:
    bodies = [numbered(400_000), numbered(3 * FRAME), b"short", numbered(1_300_000), numbered(200_000)]
    raw = b"".join(map(message, bodies))

    async def test() -> None:
        peer = RawPeer()
        peer.send(TALK + b"".join(frames(raw)) + frame(DATA, 1, 1), chunk, ahead)
        await peer.turn()
        (call,) = peer.application.conversations
        assert call.messages == bodies and call.ended
        assert peer.service.partial_bytes == 0 and not peer.core.is_within_frame
        granted = sum(one.window_increment for one in peer.of("WindowUpdate", 1))
        # More than half of the window is open, which has 8 MiB.
        assert len(raw) - granted <= 4 << 20
        if chunk == FRAME and ahead >= 1 << 20:
            # A message has memory for 1 MiB at first.
            assert max(peer.read_ahead) > 1_000_000 and sum(peer.read_ahead) > 0.9 * len(raw)

    run(test())


def side_by_side(raw: bytes, length: int, runs: list[int]) -> list[bytes]:
    """The frames of two streams with the same data: so many of the one, so many of the other, in turns."""
    sides, parts = [frames(raw, length), frames(raw, length, 3)], []
    for side, count in zip(itertools.cycle(sides), itertools.cycle(runs), strict=False):
        parts += side[:count]
        del side[:count]
        if not any(sides):
            return parts
    raise AssertionError("unreachable")


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([FRAME, 4 * KIB, 5_000, 32 * KIB]),
    st.lists(st.integers(0, 30 * FRAME), min_size=1, max_size=4),
    st.lists(st.sampled_from([1, 2, 5, 40]), min_size=1, max_size=6),
    st.lists(st.integers(0, 100), max_size=3),
    st.sampled_from([None, FRAME, 3_000]),
    st.sampled_from([9, 20_000, 150_000, 1 << 20]),
)
def test_what_comes_between_the_frames_is_read_in_its_order(
    length: int, sizes: list[int], runs: list[int], pings: list[int], chunk: int | None, ahead: int
) -> None:
    bodies = [numbered(size) for size in sizes]
    parts = side_by_side(b"".join(map(message, bodies)), length, runs)
    for place in pings:
        parts.insert(place, frame(PING, 0, 0, b"12345678"))

    async def test() -> None:
        peer = RawPeer()
        peer.send(TALK + peer.open(3, "/Listen"))
        peer.send(b"".join(parts) + frame(DATA, 1, 1) + frame(DATA, 1, 3), chunk, ahead)
        await peer.turn()
        for call in peer.application.conversations:
            assert call.messages == bodies and call.ended
        assert len(peer.of("Ping")) == len(pings)
        assert peer.service.partial_bytes == 0 and not peer.core.is_within_frame

    run(test())


def test_calls_side_by_side_are_not_read_ahead_time_and_again() -> None:
    """What was read in vain has to be copied."""
    body = numbered(1 << 20)
    sides = [frames(message(body), stream_id=stream_id) for stream_id in (1, 3)]

    async def test() -> None:
        peer = RawPeer()
        peer.send(TALK + peer.open(3, "/Listen"))
        peer.send(b"".join(itertools.chain(*zip(*sides, strict=True))), FRAME, 1 << 20)
        assert [call.messages for call in peer.application.conversations] == [[body]] * 2
        assert 1 <= len(peer.read_ahead) <= 3

    run(test())


def test_a_call_that_is_reset_gets_nothing_more() -> None:
    async def test() -> None:
        peer = RawPeer()
        parts = frames(message(numbered(1 << 20)))
        parts.insert(30, frame(RST, 0, 1, struct.pack(">I", 8)))
        peer.send(TALK + b"".join(parts[:31]), FRAME, 1 << 20)
        assert peer.application.conversations[0].cancelled == 1
        peer.leaves_nothing()
        assert peer.serves(3)

    run(test())


def test_what_another_protocol_received_comes_before_what_waits_in_the_socket() -> None:
    body = numbered(1 << 20)
    raw = START + TALK + b"".join(frames(message(body)))

    async def test() -> None:
        peer = RawPeer(start=b"")

        def read_into(parts: Sequence[memoryview], size: int) -> int:
            raise AssertionError("read ahead of what is at hand")

        peer.core.read_into = read_into
        peer.connection.feed(raw[:700_000])
        assert peer.core.read_into is read_into
        peer.connection.read_on()
        peer.deliver(raw[700_000:])
        assert peer.application.conversations[0].messages == [body]

    run(test())


def test_a_message_above_the_limit_is_refused_with_what_follows_it() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_message_bytes=100_000))
        peer.send(TALK + b"".join(frames(message(numbered(150_000)))) + frame(DATA, 1, 1), FRAME, 1 << 20)
        code, text = peer.status(1)
        assert code == 8 and "150000 bytes" in text
        peer.leaves_nothing()
        assert peer.serves(3)

    run(test())


# Over sockets

LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.SelectorEventLoop}


def run_on(loop: str, test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(test, WAIT_S))


@pytest.mark.parametrize("loop", LOOPS)
def test_messages_arrive_over_sockets(loop: str) -> None:
    bodies = [numbered(size) for size in (3_000_000, 100, 600_000, 50_000, 5_000_000)]
    raw = START + TALK + b"".join(frames(b"".join(map(message, bodies)))) + frame(DATA, 1, 1)

    async def test() -> None:
        async with served() as (listener, application):
            with socket.create_connection(("127.0.0.1", listener.port)) as client:
                await asyncio.to_thread(client.sendall, raw)
                await until(lambda: application.conversations[0].ended)
                assert application.conversations[0].messages == bodies
                assert all(connection.core.read_into is not None for connection in listener.connections)

    run_on(loop, test())


@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_encrypted_is_not_read_ahead(loop: str, tmp_path: Path) -> None:
    authority = new_authority(tmp_path, "authority")
    identity = authority.issue("server")
    body = numbered(600_000)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.cert, identity.key)
    context.set_alpn_protocols(["h2"])
    trusting = ssl.create_default_context(cafile=str(authority.root))
    trusting.set_alpn_protocols(["h2"])

    def ask(port: int) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", port))
        client = trusting.wrap_socket(plain, server_hostname="localhost")
        client.sendall(START + TALK + b"".join(frames(message(body))) + frame(DATA, 1, 1))
        return client

    async def test() -> None:
        async with served(context=context) as (listener, application):
            with await asyncio.to_thread(ask, listener.port):
                await until(lambda: application.conversations and application.conversations[0].ended)
                assert application.conversations[0].messages == [body]
                assert all(connection.core.read_into is None for connection in listener.connections)

    run_on(loop, test())


def test_others_have_a_turn_between_large_messages() -> None:
    raw = START + TALK + b"".join(frames(message(bytes(1_000_000)) * 8))

    async def test() -> None:
        async with served() as (listener, _):
            turns, seen = asyncio.get_running_loop(), [0]

            def look() -> None:
                seen.append(sum(connection.core.data_frames for connection in listener.connections))
                turns.call_soon(look)

            turns.call_soon(look)
            with socket.create_connection(("127.0.0.1", listener.port)) as client:
                client.setblocking(False)
                # As much as the kernel takes before the loop looks.
                sent = client.send(raw)
                time.sleep(0.1)
                client.setblocking(True)
                await asyncio.to_thread(client.sendall, raw[sent:])
                await until(lambda: seen[-1] >= len(raw) // (FRAME + 9))
            # What one read takes, and a buffer full; or twice that, where the order of a turn changes.
            assert max(after - before for before, after in itertools.pairwise(seen)) <= 2 * (MAX_SCATTERED + 16)

    run_on("uvloop", test())
