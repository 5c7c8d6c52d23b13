"""Answers that their callers do not take are kept up to a bound, over all connections together."""

from __future__ import annotations

import asyncio

import pytest

from naiad.frontends.http.server.state import HttpLimits
from support.http_peer import LOOPS, WAIT_S, Server, run, serving

MEGABYTE = 1 << 20
# More than the kernel takes on behalf of a caller that does not read.
LARGE = 32 * MEGABYTE
LIMITS = HttpLimits(max_waiting_bytes=40 * MEGABYTE)

loops = pytest.mark.parametrize("loop", sorted(LOOPS))


def kept(server: Server) -> int:
    return sum(c.backlog_bytes() for c in server.listener._http.connections)


@loops
def test_the_connections_that_keep_most_are_dropped(loop: str) -> None:
    async def test() -> None:
        async with serving(LIMITS) as server:
            first, second = await server.connect(1 << 16), await server.connect(1 << 16)
            first.post(f"/big?{LARGE}")
            await server.until(lambda: kept(server) > LARGE // 2)
            server.pass_time(1)
            assert server.listener.connection_count == 2
            second.post(f"/big?{2 * LARGE}")
            # At once: as many could follow within a second as end the server.
            await server.until(lambda: server.listener.connection_count == 1)
            answer = await asyncio.wait_for(first.response(), WAIT_S)
            assert (answer.status, len(answer.body)) == (200, LARGE)
            first.post("/echo", b"still here")
            assert (await first.response()).body == b"still here"

    run(loop, test())


@loops
def test_answers_that_wait_for_an_earlier_one_count_too(loop: str) -> None:
    async def test() -> None:
        async with serving(LIMITS) as server:
            client = await server.connect()
            client.post("/later")
            await server.application.wait_for(1)
            for _ in range(2):
                client.post(f"/big?{LARGE}")
            assert await client.is_lost()

    run(loop, test())


@loops
def test_many_small_answers_are_added_up_between_two_sweeps(loop: str) -> None:
    async def test() -> None:
        limits = HttpLimits(max_waiting_bytes=8 * MEGABYTE)
        async with serving(limits) as server:
            client = await server.connect()
            client.post("/later")
            await server.application.wait_for(1)
            for _ in range(20):
                client.post(f"/big?{MEGABYTE // 2}")
            assert await client.is_lost()
            assert server.application.handled > 10

    run(loop, test())
