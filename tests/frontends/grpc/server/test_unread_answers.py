"""Answers that their peer does not take: how long and how much of them is kept, and who pays for it."""

from __future__ import annotations

import asyncio
import struct
import time

import pytest

from naiad.clock import ManualClock
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.grpc.server.connection import GrpcConnection
from naiad.frontends.grpc.server.listener import GrpcListener
from naiad.frontends.grpc.server.state import MAX_STREAMS_TOGETHER, MIN_STREAMS
from naiad.wire.grpc.status import STOPPING
from naiad.wire.http2 import incoming_limits
from naiad.wire.http2.incoming_limits import CONNECTION_WINDOW
from support.h2_application import Application
from support.h2_frames import (
    PING,
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
from support.h2_peer import SECOND_NS, WAIT_S, RawPeer, run

MEGABYTE = 1 << 20
CALM = 11
REFUSED = 7
SHUT = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
OPENED = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 30)) + frame(WINDOW, 0, 0, struct.pack(">I", 1 << 30))
CANCEL = struct.pack(">I", 8)


def big(peer: RawPeer, stream_id: int, size: int) -> bytes:
    return peer.open(stream_id, "/Big") + data_frame(stream_id, message(b"%d" % size), True)


def echo(peer: RawPeer, stream_id: int) -> bytes:
    return peer.open(stream_id, "/Echo") + data_frame(stream_id, message(b"ok"), True)


def told(peer: RawPeer) -> list[tuple[int, bytes]]:
    """Codes and reasons of the GOAWAY frames that are no mere request to leave."""
    return [(one.error_code, one.additional_data) for one in peer.of("GoAway") if one.error_code]


def refused(peer: RawPeer) -> list[int]:
    return [one.stream_id for one in peer.of("RstStream") if one.error_code == REFUSED]


# For how long


def shut_with_an_answer(limits: GrpcLimits) -> RawPeer:
    peer = RawPeer(limits)
    peer.send(SHUT + big(peer, 1, 200_000))
    return peer


def test_a_peer_that_takes_nothing_is_told_why_it_is_left() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(stall_s=10, unread_s=60, drain_linger_s=2))
        peer.send(big(peer, 1, 200_000))
        await peer.live(58)
        peer.send(frame(WINDOW, 0, 1, b"\0\0\0\1") + frame(WINDOW, 0, 0, b"\0\0\0\1"))
        await peer.live(58)
        assert told(peer) == []
        await peer.live(3)
        ((code, reason),) = told(peer)
        assert code == CALM
        assert b"no progress for 60 s" in reason
        assert peer.core.waiting_bytes == 0
        assert not peer.core.streams
        # It may read that first.
        assert not peer.transport.closing
        await peer.live(2)
        assert peer.transport.closing
        assert not peer.transport.aborted
        assert len(told(peer)) == 1

    run(test())


def test_a_peer_that_takes_nothing_but_speaks_stays() -> None:
    async def test() -> None:
        peer = shut_with_an_answer(GrpcLimits(unread_s=60))
        for _ in range(10):
            await peer.live(50)
            peer.send(frame(WINDOW, 0, 0, b"\0\0\0\1"))
        assert told(peer) == []
        peer.send(OPENED)
        assert b"".join(bytes(one.data) for one in peer.of("Data", 1)) == message(numbered(200_000))

    run(test())


@pytest.mark.parametrize("draining", [False, True])
def test_a_transport_that_does_not_empty(draining: bool) -> None:
    """There is no use in a GOAWAY behind what is not taken."""

    async def test() -> None:
        peer = RawPeer(GrpcLimits(unread_s=60, drain_unread_s=60))
        peer.send(peer.open(1) + data_frame(1, message(b"x"), True))
        if draining:
            peer.connection.drain()
        for _ in range(10):
            peer.transport.unsent = 10_000
            await peer.live(40)
            peer.transport.unsent = 5_000
            await peer.live(1)
        assert not peer.transport.closing
        await peer.live(65)
        assert peer.transport.aborted
        assert told(peer) == []

    run(test())


def test_a_slow_reader_whose_transport_is_always_full_stays() -> None:
    """As much is put into it as is taken out, and nothing is read of what it says."""

    async def test() -> None:
        peer = RawPeer(GrpcLimits(unread_s=60, stall_s=60))
        peer.send(OPENED + peer.open(1, "/Listen"))
        call = peer.application.conversations[0].call
        for _ in range(20):
            peer.transport.unsent = 100_000
            call.send((bytes(1000),), 1000)
            await peer.live(50)
        assert not peer.transport.closing
        await peer.live(65)
        assert peer.transport.aborted

    run(test())


def test_half_a_frame_beside_answers_that_wait() -> None:
    """The shorter time holds; who cannot finish a frame is told nothing."""

    async def test() -> None:
        peer = shut_with_an_answer(GrpcLimits(stall_s=20, unread_s=600))
        await peer.live(1)
        peer.send(frame(PING, 0, 0, b"12345678")[:12])
        await peer.live(20)
        assert not peer.transport.closing
        await peer.live(2)
        assert peer.transport.aborted
        peer.lose()
        assert peer.core.waiting_bytes == 0

    run(test())


# While the server stops


def test_stopping_waits_for_answers_that_are_taken_and_briefly_for_others() -> None:
    async def test() -> None:
        peer = shut_with_an_answer(GrpcLimits(drain_unread_s=5, drain_linger_s=2))
        # The time begins with the end of the server, whatever was before.
        await peer.live(100)
        peer.connection.drain()
        for _ in range(5):
            await peer.live(4)
            assert told(peer) == []
            peer.send(frame(WINDOW, 0, 1, b"\0\0\0\x10"))
        await peer.live(4)
        assert told(peer) == []
        await peer.live(2)
        ((code, reason),) = told(peer)
        assert code == CALM
        assert b"no progress" in reason
        await peer.live(2)
        assert peer.transport.closing

    run(test())


@pytest.mark.parametrize("talk", [frame(PING, 0, 0, b"12345678"), data_frame(3, message(b"more"))])
def test_who_goes_on_talking_does_not_hold_the_end_up(talk: bytes) -> None:
    async def test() -> None:
        peer = shut_with_an_answer(GrpcLimits(drain_unread_s=5, max_ping_strikes=0))
        peer.send(peer.open(3, "/Listen"))
        peer.connection.drain()
        for _ in range(7):
            peer.send(talk)
            await peer.live(1)
        assert [code for code, _ in told(peer)] == [CALM]

    run(test())


def test_a_frame_under_way_may_be_finished_while_the_server_stops() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(drain_unread_s=5, message_grace_s=100))
        raw = peer.open(1, "/Echo") + data_frame(1, message(bytes(200_000)), True)
        peer.send(raw[:1000])
        peer.connection.drain()
        for position in range(1000, len(raw), 10_000):
            await peer.live(3)
            peer.send(raw[position : position + 10_000])
        peer.send(frame(WINDOW, 0, 0, b"\0\x0f\0\0") + frame(WINDOW, 0, 1, b"\0\x0f\0\0"))
        await peer.turn()
        assert peer.status(1) == (0, "")

    run(test())


async def connected(listener: GrpcListener, raw: bytes) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1 << 12)
    writer.write(raw)
    await writer.drain()
    return writer


HOLDING: dict[str, bytes] = {
    "windows shut": SHUT + frame(1, 4, 1, plain_block(call_headers("/Big"))) + data_frame(1, message(b"200000"), True),
    "half a message": frame(1, 4, 1, plain_block(call_headers("/Later"))) + data_frame(1, message(bytes(99))[:50]),
    "no message": frame(1, 4, 1, plain_block(call_headers("/Later"))),
    "half a message in a stream": frame(1, 4, 1, plain_block(call_headers("/Listen"))) + data_frame(1, b"\0\0"),
    "half a packed message": frame(1, 4, 1, plain_block(call_headers("/Echo", ("grpc-encoding", "gzip"))))
    + data_frame(1, message(bytes(99), 1)[:50]),
}


@pytest.mark.parametrize("held", HOLDING)
def test_nobody_holds_the_end_of_a_listener_up(held: str) -> None:
    async def test() -> None:
        application, clock = Application(), ManualClock(1000 * SECOND_NS)
        listener = GrpcListener(application.methods(), "127.0.0.1", 0, clock=clock)
        await listener.start()
        writer = await connected(listener, START + HOLDING[held])
        async with asyncio.timeout(WAIT_S):
            while not any(connection.core.streams for connection in listener.connections):
                await asyncio.sleep(0.001)
        draining = asyncio.ensure_future(listener.drain(WAIT_S))
        seconds = 0
        while listener.connection_count and seconds < 10:
            await asyncio.sleep(0.005)
            clock.advance(SECOND_NS)
            listener.sweep()
            seconds += 1
        assert not listener.connection_count
        assert await draining
        writer.close()

    run(test())


@pytest.mark.parametrize("path", ["/Later", "/Echo"])
@pytest.mark.parametrize("raw", [b"", b"\0\0", message(bytes(1000))[:500]])
def test_half_a_message_is_answered_when_the_server_stops(path: str, raw: bytes) -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(drain_linger_s=2))
        peer.send(peer.open(1, path) + (data_frame(1, raw) if raw else b""))
        # One that is whole is waited for.
        peer.send(peer.open(3) + data_frame(3, message(b"x"), True))
        await peer.live(5)
        peer.connection.drain()
        peer.service.draining = True
        await peer.live(3)
        assert peer.status(1) == (14, STOPPING)
        await peer.live(60)
        assert 3 in peer.core.streams
        peer.application.waiting[-1].call.reply((b"fine",), 4)
        await peer.turn()
        assert peer.status(3) == (0, "")
        await peer.live(4)
        assert peer.transport.closing

    run(test())


# How much: of one connection


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes may wait on one connection."""
    monkeypatch.setattr(incoming_limits, "MAX_WAITING_BYTES", MEGABYTE)
    return MEGABYTE


def overloaded() -> RawPeer:
    """A peer that has taken none of two megabytes for a second."""
    peer = RawPeer()
    peer.send(SHUT + big(peer, 1, MEGABYTE) + big(peer, 3, MEGABYTE))
    peer.pass_time(1)
    assert refused(peer) == []
    return peer


def test_new_calls_are_refused_while_too_much_waits_and_accepted_again(little: int) -> None:
    async def test() -> None:
        peer = overloaded()
        other = RawPeer(service=peer.service, application=peer.application)
        peer.send(echo(peer, 5) + peer.open(7, "/Listen") + data_frame(7, message(b"x")))
        assert refused(peer) == [5, 7]
        assert peer.application.seen == []
        assert peer.application.conversations == []
        assert other.serves(1)
        # Just above the half.
        peer.send(frame(WINDOW, 0, 0, struct.pack(">I", 1 << 30)))
        peer.send(frame(WINDOW, 0, 1, struct.pack(">I", 2 * MEGABYTE)))
        assert peer.status(1) == (0, "")
        peer.send(frame(WINDOW, 0, 3, struct.pack(">I", MEGABYTE // 2 + 4)))
        assert peer.core.waiting_bytes == MEGABYTE // 2 + 1
        peer.send(echo(peer, 9))
        assert refused(peer) == [5, 7, 9]
        peer.send(frame(WINDOW, 0, 3, struct.pack(">I", 1)))
        peer.send(echo(peer, 11))
        assert refused(peer) == [5, 7, 9]
        peer.send(OPENED)
        await peer.turn()
        assert peer.status(3) == peer.status(11) == (0, "")
        assert peer.serves(13)
        assert not peer.core.failed

    run(test())


@pytest.mark.parametrize("given_up_by", ["the peer", "deadlines"])
def test_answers_that_are_given_up_do_not_count_any_more(little: int, given_up_by: str) -> None:
    """Nothing leaves late after that: it is no sending that ends the refusals."""

    async def test() -> None:
        peer = RawPeer()
        peer.send(SHUT)
        for stream_id in (1, 3):
            peer.send(peer.open(stream_id, "/Listen", more=[("grpc-timeout", "1H")]))
            peer.application.conversations[-1].call.send((bytes(MEGABYTE),), MEGABYTE)
        await peer.live(1)
        peer.send(echo(peer, 5))
        assert refused(peer) == [5]
        if given_up_by == "the peer":
            peer.send(frame(RST, 0, 1, CANCEL) + frame(RST, 0, 3, CANCEL))
        else:
            peer.clock.advance(3601 * SECOND_NS)
            peer.service.deadlines.expire()
        await peer.turn()
        assert peer.core.waiting_bytes == 0
        peer.send(OPENED)
        assert peer.serves(7)
        assert refused(peer) == [5]

    run(test())


def test_a_peer_that_takes_a_large_answer_has_no_call_refused(little: int) -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(big(peer, 1, 5 * MEGABYTE))
        for stream_id in range(3, 43, 2):
            peer.send(frame(WINDOW, 0, 0, b"\0\0\x01\0") + frame(WINDOW, 0, 1, b"\0\0\x01\0"))
            peer.send(echo(peer, stream_id))
            await peer.live(1)
        assert peer.core.waiting_bytes > 4 * little
        assert refused(peer) == []

    run(test())


def test_a_connection_that_refuses_still_ends_in_order(little: int) -> None:
    async def test() -> None:
        peer = overloaded()
        peer.connection.drain()
        await peer.turn()
        peer.send(frame(PING, 1, 0, peer.of("Ping")[0].opaque_data))
        await peer.live(2)
        peer.send(echo(peer, 5))
        peer.send(OPENED)
        assert peer.status(1) == peer.status(3) == (0, "")
        peer.send(echo(peer, 7))
        assert refused(peer) == [5, 7]
        assert len(peer.of("GoAway")) == 2
        assert peer.application.seen == []
        await peer.live(3)
        assert peer.transport.closing

    run(test())


def uploaded(peer: RawPeer, first: int, megabytes: int) -> int:
    """Send that much on streams that take it at once; gives back the next stream's id."""
    for _ in range(megabytes // 8):
        peer.send(peer.open(first, "/Later"))
        for part in range(8):
            peer.send(data_frame(first, bytes(MEGABYTE) if part else message(bytes(8 * MEGABYTE))[:MEGABYTE]))
        peer.send(frame(RST, 0, first, CANCEL))
        first += 2
    return first


def test_the_connection_window_is_withheld_from_who_leaves_much_waiting(little: int) -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(SHUT + big(peer, 1, 2 * MEGABYTE))
        at_first = len(peer.of("WindowUpdate", 0))
        following = uploaded(peer, 3, 56)
        assert len(peer.of("WindowUpdate", 0)) == at_first
        assert not peer.core.failed
        # Once the answer is taken, all of it is given back.
        peer.send(OPENED)
        (grant,) = peer.of("WindowUpdate", 0)[at_first:]
        assert 56 * MEGABYTE <= grant.window_increment <= CONNECTION_WINDOW
        assert peer.serves(following)

    run(test())


def test_the_connection_window_comes_back_when_deadlines_end_what_waits(little: int) -> None:
    """The peer may have nothing to send but data for which it has no room."""

    async def test() -> None:
        peer = RawPeer()
        peer.send(SHUT + peer.open(1, "/Listen", more=[("grpc-timeout", "1H")]))
        peer.application.conversations[0].call.send((bytes(2 * MEGABYTE),), 2 * MEGABYTE)
        at_first = len(peer.of("WindowUpdate", 0))
        uploaded(peer, 3, 56)
        assert len(peer.of("WindowUpdate", 0)) == at_first
        peer.clock.advance(3601 * SECOND_NS)
        peer.service.deadlines.expire()
        await peer.turn()
        assert len(peer.of("WindowUpdate", 0)) == at_first + 1

    run(test())


def test_who_sends_beyond_the_window_that_is_withheld_is_sent_away(little: int) -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(SHUT + big(peer, 1, 2 * MEGABYTE))
        uploaded(peer, 3, 80)
        assert [code for code, _ in told(peer)] == [3]
        assert peer.core.waiting_bytes == 0
        grants = peer.of("WindowUpdate", 0)
        assert sum(one.window_increment for one in grants) == CONNECTION_WINDOW - 65_535

    run(test())


# How much: of all connections


def waiting_peers(limits: GrpcLimits, sizes: list[int]) -> list[RawPeer]:
    first = RawPeer(limits)
    peers = [first, *(RawPeer(service=first.service, application=first.application) for _ in sizes[1:])]
    for peer, size in zip(peers, sizes, strict=True):
        peer.send(SHUT + big(peer, 1, size))
    return peers


def test_beyond_the_bound_those_with_the_most_are_ended() -> None:
    async def test() -> None:
        sizes = [100_000, 900_000, 1000, 500_000, 800_000, 300_000]
        peers = waiting_peers(GrpcLimits(max_waiting_bytes=1_000_000), sizes)
        healthy = RawPeer(service=peers[0].service, application=peers[0].application)
        peers[0].service.age(1)
        ended = [peer for peer in peers if told(peer)]
        assert ended == [peers[1], peers[4]]
        assert [code for peer in ended for code, _ in told(peer)] == [CALM, CALM]
        assert b"answers of 900005 bytes" in told(peers[1])[0][1]
        assert all(peer.core.waiting_bytes == 0 for peer in ended)
        assert sum(peer.core.waiting_bytes for peer in peers) == 901_000 + 4 * 5
        assert healthy.serves(1)
        for peer in peers:
            if peer not in ended:
                peer.send(OPENED)
                assert peer.status(1) == (0, "")
        peers[0].pass_time(3)
        assert all(peer.transport.closing == (peer in ended) for peer in peers)

    run(test())


def test_the_bound_is_looked_at_between_two_sweeps() -> None:
    async def test() -> None:
        peers = waiting_peers(GrpcLimits(max_waiting_bytes=1_000_000), [300_000] * 8)
        await peers[0].turn()
        assert sum(peer.core.waiting_bytes for peer in peers) <= 1_000_000
        assert 0 < sum(bool(told(peer)) for peer in peers) < len(peers)

    run(test())


def test_up_to_the_bound_nobody_is_ended() -> None:
    async def test() -> None:
        peers = waiting_peers(GrpcLimits(max_waiting_bytes=3 * 1005), [1000, 1000, 1000])
        peers[0].service.age(1)
        assert not any(told(peer) for peer in peers)

    run(test())


@pytest.mark.slow
def test_ending_many_connections_at_once_takes_little_time() -> None:
    async def test() -> None:
        peers = waiting_peers(GrpcLimits(max_waiting_bytes=1000), [1000] * 2000)
        began = time.thread_time()
        peers[0].service.age(1)
        assert time.thread_time() - began < 0.5
        assert sum(peer.core.failed for peer in peers) == 2000

    run(test())


# How many calls


def announced(peer: RawPeer) -> int:
    (settings,) = [one.settings for one in peer.of("Settings") if "ACK" not in one.flags]
    return int(settings[3])


@pytest.mark.parametrize(
    ("limit", "others", "expected"),
    [
        (4096, 0, 4096),
        (4096, 31, 4096),
        (4096, 32, MAX_STREAMS_TOGETHER // 33),
        (4096, 63, 2048),
        (4096, 5000, MIN_STREAMS),
        (50, 5000, 50),
        (1_000_000, 0, MAX_STREAMS_TOGETHER),
    ],
)
def test_calls_per_connection_become_fewer_with_many_connections(limit: int, others: int, expected: int) -> None:
    async def test() -> None:
        first = RawPeer(GrpcLimits(max_streams=limit))
        connections = first.service.connections
        first.lose()
        placeholders = {GrpcConnection(first.service) for _ in range(others)}
        connections |= placeholders
        peer = RawPeer(service=first.service, application=first.application)
        assert announced(peer) == expected
        connections -= placeholders
        assert announced(RawPeer(service=first.service, application=first.application)) == min(limit, 65_536)

    run(test())


def test_the_announced_number_is_the_one_that_holds() -> None:
    async def test() -> None:
        first = RawPeer(GrpcLimits(max_streams=4096))
        first.service.connections |= {GrpcConnection(first.service) for _ in range(5000)}
        peer = RawPeer(service=first.service, application=first.application)
        for stream_id in range(1, 2 * announced(peer) + 5, 2):
            peer.send(peer.open(stream_id))
        assert refused(peer) == [201, 203]
        assert len(peer.core.streams) == 100

    run(test())
