"""Answers that are written piece by piece, over real connections."""

from __future__ import annotations

import asyncio

import pytest

from naiad.frontends.http.server.exchange import Exchange
from naiad.frontends.http.server.streaming_response import BEHIND_BYTES, MAX_WAITING_BYTES, StreamingResponse
from support.event_loops import LOOPS, run, until
from support.http_application import Peer
from support.http_peer import Client, Server, post, serving

TYPE = "text/event-stream"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(params=sorted(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def begin(server: Server, client: Client, request: bytes = post("/later")) -> StreamingResponse:
    """Ask, and begin the answer of the request that came last."""
    count = len(server.application.waiting)
    client.send(request)
    await server.application.wait_for(count + 1)
    return StreamingResponse(server.application.waiting[-1], 200, TYPE)


async def reads(client: Client, expected: bytes) -> None:
    assert await asyncio.wait_for(client.reader.readexactly(len(expected)), 10) == expected


def test_each_piece_leaves_at_once_and_the_connection_stays(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            for _ in range(2):
                answer = await begin(server, client)
                answer.send(b"one")
                await reads(client, HEAD + b"3\r\none\r\n")
                answer.send(b"x" * 20)
                await reads(client, b"14\r\n" + b"x" * 20 + b"\r\n")
                answer.end()
                await reads(client, b"0\r\n\r\n")
            client.post("/echo", b"next")
            assert (await client.response()).body == b"next"

    run(test(), loop)


def test_who_is_told_that_there_is_room_may_end_the_answer() -> None:
    async def test() -> None:
        exchanges: list[Exchange] = []
        peer = Peer(lambda head: lambda exchange, body: exchanges.append(exchange))
        peer.receive(post("/1") + post("/2") + post("/3"))
        first, second, third = exchanges
        answer = StreamingResponse(second, 200, TYPE)
        answer.send(b"x" * (BEHIND_BYTES + 1))
        assert answer.is_behind

        def end() -> None:
            answer.send(b"last")
            answer.end()

        answer.when_taken(end)
        third.send_status(200, TYPE, b"three")
        assert not peer.transport.written
        first.send_status(200, TYPE, b"one")
        assert not peer.connection.pending
        assert peer.transport.written.count(b"HTTP/1.1 200 OK") == 3
        assert b"\r\n4\r\nlast\r\n0\r\n\r\nHTTP/1.1" in peer.transport.written
        assert peer.transport.written.endswith(b"three")

    run(test(), "asyncio")


def test_a_stream_takes_its_turn_among_other_answers(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.post("/later")
            await server.application.wait_for(1)
            answer = await begin(server, client, post("/later") + post("/echo", b"last"))
            answer.send(b"a")
            answer.send(b"b")
            server.application.waiting[0].send_status(200, "text/plain", b"first")
            assert (await client.response()).body == b"first"
            await reads(client, HEAD + b"1\r\na\r\n1\r\nb\r\n")
            answer.send(b"c")
            await reads(client, b"1\r\nc\r\n")
            answer.end()
            await reads(client, b"0\r\n\r\n")
            assert (await client.response()).body == b"last"

    run(test(), loop)


@pytest.mark.parametrize("option", [(), ("Connection: keep-alive",)])
def test_http_1_0_gets_it_up_to_the_end_of_the_connection(loop: str, option: tuple[str, ...]) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            answer = await begin(server, client, post("/later", b"", *option).replace(b"HTTP/1.1", b"HTTP/1.0"))
            answer.send(b"one")
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            await reads(client, head + b"one")
            answer.send(b"two")
            answer.end()
            assert await client.ends() == b"two"

    run(test(), loop)


def test_the_caller_may_want_the_connection_closed(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            answer = await begin(server, client, post("/later", b"", "Connection: close"))
            answer.send(b"one")
            answer.end()
            head = HEAD[:-2] + b"Connection: close\r\n\r\n"
            assert await client.ends() == head + b"3\r\none\r\n0\r\n\r\n"

    run(test(), loop)


def lose(client: Client) -> None:
    client.writer.transport.abort()


def test_a_peer_that_goes_is_reported_once_and_nothing_is_kept(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            answer = await begin(server, client)
            answer.send(b"one")
            await reads(client, HEAD + b"3\r\none\r\n")
            exchange = server.application.waiting.pop()
            lose(client)
            await until(lambda: server.application.disconnected == 1)
            await until(lambda: _goes(exchange, answer))
            answer.send(b"nobody reads this")
            answer.end()
            assert server.application.disconnected == 1
            # What is left of the exchange must not lead to the answer and back.
            assert exchange.response is None and exchange.owner is None

    run(test(), loop)


def _goes(exchange: Exchange, answer: StreamingResponse) -> bool:
    """Write until the peer's end is noticed."""
    answer.send(b"more")
    return exchange.closed()


def test_what_a_peer_does_not_take_is_counted(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect(limit=1 << 16)
            answer = await begin(server, client)
            await fill(answer)
            answer.end()
            assert (await client.response()).status == 200
            total = 0
            while not (piece := await asyncio.wait_for(client.reader.read(1 << 20), 10)).endswith(b"0\r\n\r\n"):
                total += len(piece)
            assert total + len(piece) > MAX_WAITING_BYTES

    run(test(), loop)


def test_a_stream_behind_another_answer_is_counted_too(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.post("/later")
            await server.application.wait_for(1)
            answer = await begin(server, client)
            await fill(answer)
            lose(client)

    run(test(), loop)


async def fill(answer: StreamingResponse) -> None:
    """Send until no more should be kept; the sockets take some megabytes themselves."""
    piece = bytes(1 << 20)
    for _ in range(100):
        if answer.is_full:
            return
        answer.send(piece)
        await asyncio.sleep(0)
    raise AssertionError("no bound was met")
