"""How a gRPC connection begins, is watched and ends; time is turned by hand."""

from __future__ import annotations

import asyncio
import struct

import pytest

from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.grpc.server.connection import GrpcConnection
from naiad.frontends.grpc.server.state import GrpcService
from naiad.wire.grpc.status import STOPPING
from support.h2_frames import (
    DATA,
    HEADERS,
    PING,
    PREFACE,
    RST,
    SETTINGS,
    START,
    WINDOW,
    data_frame,
    frame,
    message,
    numbered,
)
from support.h2_peer import Peer, RawPeer, run

MAX_ID = 2**31 - 1


def goaways(peer: RawPeer) -> list[tuple[int, int]]:
    return [(one.last_stream_id, one.error_code) for one in peer.of("GoAway")]


def answer_all(peer: RawPeer) -> None:
    for waiting in peer.application.waiting:
        waiting.call.reply((b"fine",), 4)


def answer_drain_ping(peer: RawPeer) -> None:
    """The client has seen the first GOAWAY."""
    (asked,) = [one for one in peer.of("Ping") if "ACK" not in one.flags]
    peer.send(frame(PING, 1, 0, asked.opaque_data))


# Draining


def test_a_connection_without_calls_closes_to_new_ones_at_once() -> None:
    async def test() -> None:
        peer = RawPeer()
        assert peer.serves(1)
        peer.connection.drain()
        await peer.turn()
        assert goaways(peer) == [(1, 0)]
        assert not peer.transport.closing
        # Unless the peer closes first, the server does.
        await peer.live(3)
        assert peer.transport.closing
        assert not peer.transport.aborted

    run(test())


def test_calls_under_way_are_answered_while_draining() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(
            peer.open(1) + data_frame(1, message(b"a"), True) + peer.open(3) + data_frame(3, message(b"b")[:3], False)
        )
        peer.connection.drain()
        peer.connection.drain()
        await peer.turn()
        assert goaways(peer) == [(MAX_ID, 0)]
        # The peer did not know when it opened this one.
        peer.send(peer.open(5) + data_frame(5, message(b"c"), True))
        await peer.turn()
        assert peer.status(5) == (14, STOPPING)
        answer_drain_ping(peer)
        assert goaways(peer) == [(MAX_ID, 0), (5, 0)]
        peer.send(data_frame(3, message(b"b")[3:], True))
        await peer.live(100)
        assert not peer.transport.closing
        answer_all(peer)
        await peer.turn()
        assert peer.status(1) == peer.status(3) == (0, "")
        await peer.live(3)
        assert peer.transport.closing
        assert not peer.transport.aborted
        assert all(waiting.owner.cancelled == 0 for waiting in peer.application.waiting)

    run(test())


def test_a_peer_that_does_not_answer_the_ping_is_told_by_the_next_sweep() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1) + data_frame(1, message(b"a"), True))
        peer.connection.drain()
        await peer.live(1)
        await peer.turn()
        assert goaways(peer) == [(MAX_ID, 0), (1, 0)]

    run(test())


@pytest.mark.parametrize("with_call", [True, False])
def test_calls_that_cross_the_last_goaway_are_refused_without_harm(with_call: bool) -> None:
    async def test() -> None:
        peer = RawPeer()
        if with_call:
            peer.send(peer.open(1) + data_frame(1, message(b"a"), True))
        peer.connection.drain()
        if with_call:
            await peer.live(1)
        await peer.turn()
        raced = (
            peer.open(3, "/Echo")
            + frame(WINDOW, 0, 3, b"\0\0\0\1")
            + data_frame(3, message(b"x"), True)
            + frame(RST, 0, 3, b"\0\0\0\x08")
        )
        peer.send(raced + peer.open(5, "/Echo") + data_frame(5, message(b"yy")[:3], False) + data_frame(5, b"", True))
        await peer.turn()
        assert [one.error_code for stream_id in (3, 5) for one in peer.of("RstStream", stream_id)][:2] == [7, 7]
        assert {one.error_code for one in peer.of("GoAway")} == {0}
        assert peer.application.seen == []
        if with_call:
            answer_all(peer)
            await peer.turn()
            assert peer.status(1) == (0, "")
        await peer.live(3)
        assert peer.transport.closing

    run(test())


def test_streaming_calls_are_asked_to_stop() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Talk") + data_frame(1, message(b"a"), False))
        peer.connection.drain()
        await peer.turn()
        assert b"".join(bytes(one.data) for one in peer.of("Data", 1)) == message(b"a")
        assert peer.status(1) == (14, STOPPING)
        await peer.live(4)
        assert peer.transport.closing
        assert peer.application.conversations[0].cancelled == 0

    run(test())


def test_draining_before_the_first_byte() -> None:
    async def test() -> None:
        for start in (b"", PREFACE[:5], PREFACE):
            peer = RawPeer(start=start)
            peer.connection.drain()
            await peer.turn()
            assert goaways(peer) == [(0, 0)]
            peer.send(START[len(start) :])
            await peer.turn()
            assert goaways(peer) == [(0, 0)]
            await peer.live(4)
            assert peer.transport.closing

    run(test())


def test_a_listener_that_drains_takes_no_connection() -> None:
    async def test() -> None:
        service = GrpcService({}, GrpcLimits())
        service.draining = True
        peer = RawPeer(service=service, start=b"")
        assert peer.transport.aborted
        peer.lose()
        assert not service.connections

    run(test())


def test_answers_that_wait_are_sent_before_the_end() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Big") + data_frame(1, message(b"200000"), True))
        peer.connection.drain()
        await peer.turn()
        for _ in range(15):
            await peer.live(4)
            peer.send(frame(WINDOW, 0, 0, b"\0\0\0\1") + frame(WINDOW, 0, 1, b"\0\0\0\1"))
        assert not peer.transport.closing
        peer.send(frame(WINDOW, 0, 0, b"\0\x0f\0\0") + frame(WINDOW, 0, 1, b"\0\x0f\0\0"))
        await peer.turn()
        assert b"".join(bytes(one.data) for one in peer.of("Data", 1)) == message(numbered(200_000))
        assert peer.status(1) == (0, "")
        await peer.live(3)
        assert peer.transport.closing

    run(test())


# Age


def test_a_connection_ends_at_its_age() -> None:
    async def test() -> None:
        for _ in range(10):
            peer = RawPeer(GrpcLimits(max_connection_age_ms=100_000, keepalive_time_ms=10_000_000))
            peer.send(peer.open(1) + data_frame(1, message(b"a"), True))
            await peer.live(88)
            await peer.turn()
            assert goaways(peer) == []
            await peer.live(25)
            await peer.turn()
            assert goaways(peer) == [(MAX_ID, 0), (1, 0)]
            # Calls that come before the peer knows are served: the server does not stop.
            assert not peer.connection.turned_away
            answer_all(peer)
            await peer.turn()
            assert peer.status(1) == (0, "")
            await peer.live(3)
            assert peer.transport.closing

    run(test())


def test_an_idle_connection_ends_at_its_age_too() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_connection_age_ms=100_000))
        await peer.live(140)
        assert peer.transport.closing
        assert goaways(peer) == [(0, 0)]

    run(test())


def test_the_grace_after_the_age() -> None:
    async def test() -> None:
        for grace, dropped in ((20_000, True), (0, False)):
            limits = GrpcLimits(max_connection_age_ms=100_000, max_connection_age_grace_ms=grace)
            peer = RawPeer(limits)
            peer.send(peer.open(1) + data_frame(1, message(b"a"), True))
            await peer.live(109)
            assert not peer.transport.aborted
            await peer.live(25)
            assert peer.transport.aborted is dropped

    run(test())


def test_connections_end_at_different_ages() -> None:
    async def test() -> None:
        limits = GrpcLimits(max_connection_age_ms=1_000_000)
        ages = {GrpcConnection(GrpcService({}, limits))._age_ns for _ in range(50)}
        assert len(ages) > 40
        assert 900 * 10**9 <= min(ages) < max(ages) <= 1100 * 10**9

    run(test())


# Standing still


@pytest.mark.parametrize(
    "sent", [b"", PREFACE[:10], PREFACE, START[:-1], PREFACE + frame(SETTINGS, 0, 0, b"\0" * 6)[:12]]
)
def test_a_connection_that_never_begins_is_dropped(sent: bytes) -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(start_s=30), start=b"")
        for position in range(0, len(sent), 4):
            peer.send(sent[position : position + 4])
            await peer.live(2)
        await peer.live(29 - peer.clock.now_ns() // 10**9 + 1000)
        assert not peer.transport.aborted
        await peer.live(2)
        assert peer.transport.aborted

    run(test())


HALVES = [
    frame(HEADERS, 4, 1, b"\0" * 50)[:20],
    frame(HEADERS, 0, 1, b"\x82"),
    frame(SETTINGS, 0, 0, b"\0" * 6)[:10],
    frame(PING, 0, 0, b"12345678")[:3],
    frame(99, 0, 0, b"", 1000),
]


@pytest.mark.parametrize("half", HALVES)
def test_half_a_frame_is_not_waited_for_for_ever(half: bytes) -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(stall_s=60))
        await peer.live(5)
        peer.send(half)
        assert peer.core.is_within_frame
        await peer.live(59)
        assert not peer.transport.aborted
        # A connection that was idle is looked at seldom.
        await peer.live(63)
        assert peer.transport.aborted

    run(test())


def test_an_idle_connection_stays() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(stall_s=60, keepalive_time_ms=10**9))
        await peer.live(5000)
        assert not peer.transport.closing
        assert peer.serves(1)

    run(test())


def test_a_call_that_takes_long_stays() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(stall_s=60, keepalive_time_ms=10**9))
        peer.send(
            peer.open(1)
            + data_frame(1, message(b"x"), True)
            + peer.open(3, "/Listen")
            + data_frame(3, message(b"x"), False)
        )
        await peer.live(5000)
        answer_all(peer)
        await peer.turn()
        assert peer.status(1) == (0, "")
        assert 3 in peer.core.streams

    run(test())


@pytest.mark.parametrize("unsent", [0, 1000])
def test_a_connection_that_failed_goes_even_if_the_peer_takes_nothing(unsent: int) -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(stall_s=60, drain_linger_s=2))
        peer.transport.unsent = unsent
        peer.send(frame(PING, 0, 1, b"12345678"))
        await peer.live(1)
        assert not peer.transport.closing
        await peer.live(2)
        assert peer.transport.closing
        await peer.live(70)
        assert peer.transport.aborted
        # It may send what it likes until then.
        for _ in range(100):
            peer.connection.get_buffer(-1)
            peer.connection.buffer_updated(1000)
        assert not peer.core.streams

    run(test())


# The transport


def test_a_full_transport_stops_reading_and_is_filled_again() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(
            frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 24)) + frame(WINDOW, 0, 0, struct.pack(">I", 1 << 24))
        )
        peer.send(peer.open(1, "/Listen"))
        call = peer.application.conversations[0].call
        peer.connection.pause_writing()
        for _ in range(5):
            call.send((bytes(100_000),), 100_000)
        await peer.turn()
        assert peer.of("Data", 1) == []
        assert peer.core.waiting_bytes == 5 * 100_005
        peer.connection.resume_writing()
        assert sum(len(one.data) for one in peer.of("Data", 1)) == 5 * 100_005

    run(test())


@pytest.mark.slow
def test_a_transport_that_fills_in_the_middle_of_an_answer() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(
            frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 28)) + frame(WINDOW, 0, 0, struct.pack(">I", 1 << 28))
        )
        written = []
        plain = peer.transport.writelines

        def choking(parts: list[bytes]) -> None:
            plain(parts)
            written.append(sum(map(len, parts)))
            if peer.transport.reading:
                peer.connection.pause_writing()

        peer.transport.writelines = choking  # type: ignore[method-assign]
        peer.send(peer.open(1, "/Big") + data_frame(1, message(b"8000000"), True))
        rounds = 0
        while peer.core.waiting:
            await peer.turn()
            rounds += 1
            peer.connection.resume_writing()
        assert rounds > 3
        assert max(written) < 3 << 20
        assert b"".join(bytes(one.data) for one in peer.of("Data", 1)) == message(numbered(8_000_000))

    run(test())


def test_a_lost_connection_leaves_nothing() -> None:
    async def test() -> None:
        peer = RawPeer()
        emptied = []
        peer.service.on_empty = lambda: emptied.append(True)
        peer.send(
            peer.open(1)
            + data_frame(1, message(b"x"), True)
            + peer.open(3, "/Listen")
            + data_frame(3, message(bytes(100))[:50], False)
        )
        peer.send(peer.open(5, "/Big") + data_frame(5, message(b"1000000"), True))
        listening = peer.application.conversations[0]
        peer.connection.connection_lost(ConnectionResetError())
        assert emptied == [True]
        assert not peer.service.connections
        assert not peer.core.streams
        assert peer.service.partial_bytes == 0
        assert peer.core.waiting_bytes == 0
        assert (listening.cancelled, peer.application.waiting[0].owner.cancelled) == (1, 1)
        answer_all(peer)
        listening.call.send((b"late",), 4)
        before = len(peer.read())
        assert len(await peer.read_all()) == before

    run(test())


def test_too_many_connections() -> None:
    async def test() -> None:
        first = RawPeer(GrpcLimits(max_connections=2))
        second = RawPeer(service=first.service, application=first.application)
        third = RawPeer(service=first.service, application=first.application)
        (goodbye,) = third.of("GoAway")
        assert goodbye.error_code == 11
        assert b"2 connections" in goodbye.additional_data
        assert third.send(third.open(1, "/Echo") + data_frame(1, message(b"x"), True)) == []
        assert first.serves(1)
        assert second.serves(1)
        for _ in range(5):
            third.connection.quiet += 1
            third.connection.check_time()
        assert third.transport.closing
        third.lose()
        fourth = RawPeer(service=first.service, application=first.application)
        second.lose()
        fourth.lose()
        fifth = RawPeer(service=first.service, application=first.application)
        assert fifth.serves(1)
        assert fourth.of("GoAway")

    run(test())


def test_too_many_calls_are_refused_and_may_come_again() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_streams=3))
        for stream_id in (1, 3, 5, 7, 9):
            peer.send(peer.open(stream_id) + data_frame(stream_id, message(b"x"), True))
        assert [one.stream_id for one in peer.of("RstStream") if one.error_code == 7] == [7, 9]
        assert not peer.core.failed
        answer_all(peer)
        await peer.turn()
        for stream_id in (1, 3, 5):
            assert peer.status(stream_id) == (0, "")
        assert peer.serves(11)

    run(test())


def test_bytes_that_another_protocol_received() -> None:
    async def test() -> None:
        peer = RawPeer(start=b"")
        calls = b"".join(
            peer.open(i, "/Echo") + data_frame(i, message(numbered(100_000)), True) for i in range(1, 21, 2)
        )
        peer.connection.feed(START + calls)
        await peer.turn()
        assert peer.application.seen == [("/Echo", numbered(100_000))] * 10

    run(test())


@pytest.mark.parametrize("size", [3, 4000, 70_000])
def test_connections_that_share_a_buffer_do_not_mix(size: int) -> None:
    async def test() -> None:
        first = RawPeer()
        second = RawPeer(service=first.service, application=first.application)
        length = 300 if size < 10 else 300_000
        sent = {}
        for peer, letter in ((first, b"1"), (second, b"2")):
            raw = message(letter * length)
            pieces = [raw[i : i + 9001] for i in range(0, len(raw), 9001)]
            frames = [data_frame(1, piece, piece is pieces[-1]) for piece in pieces]
            sent[peer] = peer.open(1) + frame(99, 0, 0, letter * 50) + b"".join(frames)
        for position in range(0, max(map(len, sent.values())), size):
            for peer, raw in sent.items():
                peer.send(raw[position : position + size])
        assert [waiting.body for waiting in first.application.waiting] == [b"1" * length, b"2" * length]

    run(test())


def test_memory_asked_for_and_not_used() -> None:
    """A loop may ask where to read to, and then there is nothing to read."""

    async def test() -> None:
        peer = RawPeer()
        raw = message(numbered(300_000))
        peer.send(peer.open(1, more=[("grpc-timeout", "1S")]) + frame(DATA, 1, 1, raw[:100_000], len(raw)))
        assert len(peer.connection.get_buffer(-1)) < 1 << 18
        peer.connection.get_buffer(-1)
        peer.clock.advance(2 * 10**9)
        peer.service.deadlines.expire()
        peer.send(raw[100_000:] + peer.open(5, "/Echo") + data_frame(5, message(b"ok"), True))
        await peer.turn()
        assert peer.status(1)[0] == 4
        assert peer.status(5) == (0, "")
        assert peer.serves(7)

    run(test())


def test_an_own_buffer_for_loops_that_read_ahead() -> None:
    async def test() -> None:
        first = RawPeer(own_buffer=True)
        second = RawPeer(service=first.service, application=first.application)
        one, two = memoryview(first.connection.get_buffer(-1)), memoryview(second.connection.get_buffer(-1))
        sent = first.open(1, "/Echo") + data_frame(1, message(b"one"), True)
        one[: len(sent)] = sent
        other = second.open(1, "/Echo") + data_frame(1, message(b"two"), True)
        two[: len(other)] = other
        first.connection.buffer_updated(len(sent))
        second.connection.buffer_updated(len(other))
        assert [body for _, body in first.application.seen] == [b"one", b"two"]

    run(test())


def test_the_end_of_the_peers_side_ends_the_connection() -> None:
    async def test() -> None:
        assert not RawPeer().connection.eof_received()

    run(test())


@pytest.mark.parametrize("gathers", [True, False])
def test_both_ways_of_writing(gathers: bool) -> None:
    async def test() -> None:
        peer = Peer()
        peer.service.gathers_writes = gathers
        answers = await asyncio.gather(*[peer.ask("/Big", str(size).encode()) for size in (0, 10, 50_000, 300_000)])
        assert [answer.messages for answer in answers] == [[numbered(size)] for size in (0, 10, 50_000, 300_000)]

    run(test())
