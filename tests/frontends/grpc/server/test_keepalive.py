"""Pings in both directions, on a clock that is turned by hand."""

from __future__ import annotations

import pytest

from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.grpc.server.keepalive import PING
from support.h2_frames import frame, message
from support.h2_peer import RawPeer, run

SECOND = 1_000
PONG = frame(6, 1, 0, PING)


def ping(n: int = 0) -> bytes:
    return frame(6, 0, 0, n.to_bytes(8, "big"))


def strict(**more: object) -> GrpcLimits:
    return GrpcLimits(min_ping_interval_ms=10 * SECOND, max_ping_strikes=2, **more)  # type: ignore[arg-type]


def asked(peer: RawPeer) -> int:
    """How many pings the server has sent."""
    return sum("ACK" not in one.flags for one in peer.of("Ping"))


def too_many(peer: RawPeer) -> bool:
    found = peer.of("GoAway")
    if found:
        assert [(one.error_code, one.additional_data) for one in found] == [(11, b"too_many_pings")]
    return bool(found)


# The peer's pings


def test_pings_that_come_too_often() -> None:
    async def test() -> None:
        peer = RawPeer(strict())
        peer.send(peer.open(1))
        for _ in range(3):
            peer.send(ping())
            assert not too_many(peer)
        peer.send(ping())
        assert too_many(peer)
        assert not peer.core.streams
        peer.pass_time(5)
        assert peer.transport.closing

    run(test())


def test_all_of_them_are_answered_first() -> None:
    async def test() -> None:
        peer = RawPeer(strict())
        peer.send(b"".join(map(ping, range(10))))
        assert [int.from_bytes(one.opaque_data, "big") for one in peer.of("Ping")] == [0, 1, 2, 3]
        assert peer.read()[-1].kind == "GoAway"

    run(test())


def test_pings_at_the_allowed_interval() -> None:
    async def test() -> None:
        peer = RawPeer(strict())
        peer.send(peer.open(1))
        for _ in range(20):
            peer.send(ping())
            peer.pass_time(10)
        assert not too_many(peer)
        assert len(peer.of("Ping")) == 20

    run(test())


def test_strikes_are_forgotten_when_an_answer_was_sent() -> None:
    async def test() -> None:
        peer = RawPeer(strict())
        for i in range(20):
            peer.send(ping() * 3)
            assert not too_many(peer)
            assert peer.serves(2 * i + 1)
        peer.send(ping() * 4)
        assert too_many(peer)

    run(test())


def test_without_calls_pings_may_come_every_two_hours() -> None:
    async def test() -> None:
        for permitted in (False, True):
            peer = RawPeer(strict(keepalive_permit_without_calls=permitted))
            for _ in range(4):
                peer.send(ping())
                peer.pass_time(60)
            assert too_many(peer) is not permitted
        peer = RawPeer(strict())
        for _ in range(6):
            peer.send(ping())
            peer.clock.advance(7200 * 10**9)
        assert not too_many(peer)

    run(test())


def test_no_limit_of_strikes() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_ping_strikes=0))
        peer.send(ping() * 100)
        assert not too_many(peer)

    run(test())


# The server's pings


def watched(**more: object) -> RawPeer:
    return RawPeer(GrpcLimits(keepalive_time_ms=20 * SECOND, keepalive_timeout_ms=5 * SECOND, **more))  # type: ignore[arg-type]


def test_a_quiet_connection_with_a_call_is_asked() -> None:
    async def test() -> None:
        peer = watched()
        peer.send(peer.open(1))
        peer.pass_time(19)
        assert asked(peer) == 0
        peer.pass_time(2)
        await peer.turn()
        assert asked(peer) == 1
        peer.send(PONG)
        peer.pass_time(10)
        assert not peer.transport.closing
        await peer.turn()
        assert asked(peer) == 1

    run(test())


def test_a_peer_that_does_not_answer_is_dropped() -> None:
    async def test() -> None:
        peer = watched()
        peer.send(peer.open(1))
        peer.pass_time(21)
        await peer.turn()
        assert asked(peer) == 1
        peer.pass_time(3)
        assert not peer.transport.aborted
        peer.pass_time(5)
        assert peer.transport.aborted

    run(test())


def test_anything_that_comes_is_an_answer() -> None:
    async def test() -> None:
        peer = watched(max_pings_without_data=0)
        peer.send(peer.open(1))
        for _ in range(5):
            peer.pass_time(23)
            peer.send(frame(8, 0, 0, b"\0\0\0\1"))
        assert not peer.transport.closing
        await peer.turn()
        assert asked(peer) == 5

    run(test())


def test_without_a_call_nobody_is_asked_unless_permitted() -> None:
    async def test() -> None:
        for permitted in (False, True):
            peer = watched(keepalive_permit_without_calls=permitted)
            peer.pass_time(22)
            await peer.turn()
            assert asked(peer) == int(permitted)
            peer.pass_time(20)
            assert peer.transport.aborted is permitted

    run(test())


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_only_so_many_pings_without_data(limit: int) -> None:
    async def test() -> None:
        peer = watched(max_pings_without_data=limit)
        peer.send(peer.open(1))
        for _ in range(10):
            peer.pass_time(25)
            await peer.turn()
            peer.send(PONG)
        assert asked(peer) == limit
        # An answer makes room for more.
        peer.send(peer.open(3, "/Echo") + frame(0, 1, 3, message(b"x")))
        peer.pass_time(25)
        await peer.turn()
        assert asked(peer) == limit + 1

    run(test())


def test_a_busy_connection_is_not_asked() -> None:
    async def test() -> None:
        peer = watched()
        peer.send(peer.open(1))
        for i in range(10):
            peer.pass_time(15)
            assert peer.serves(2 * i + 3)
        assert asked(peer) == 0

    run(test())
