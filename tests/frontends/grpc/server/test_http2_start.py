"""Connections of the HTTP port that begin as HTTP/2: handed over with all their bytes, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from naiad.frontends.http.server.listener import HttpListener
from support.event_loops import LOOPS, WAIT_S, run
from support.http_peer import Application, Client, post

START = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MORE = bytes(range(256)) * 8


@pytest.fixture(params=sorted(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Taken(asyncio.BufferedProtocol):
    """Keeps what it gets and says how much that is."""

    def __init__(self, transport: asyncio.Transport, data: bytes) -> None:
        self.transport = transport
        self.received = bytearray(data)
        self.buffer = bytearray(1000)
        self.lost = False
        transport.set_protocol(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]
        self.transport.write(b"%d " % len(self.received))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


@dataclass
class Port:
    """An HTTP listener whose HTTP/2 connections are kept in ``taken``."""

    application: Application = field(default_factory=Application)
    taken: list[Taken] = field(default_factory=list)
    listener: HttpListener = field(init=False)

    def take(self, transport: asyncio.Transport, data: bytes) -> None:
        self.taken.append(Taken(transport, data))

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.listener.port))

    async def until_taken(self, data: bytes) -> None:
        async with asyncio.timeout(WAIT_S):
            while not self.taken or self.taken[0].received != data:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(takes: bool = True) -> AsyncIterator[Port]:
    port = Port()
    port.listener = HttpListener(port.application, "127.0.0.1", 0, take_http2=port.take if takes else None)
    await port.listener.start()
    try:
        yield port
    finally:
        for taken in port.taken:
            taken.transport.abort()
        assert await port.listener.drain(5)


@pytest.mark.parametrize("sizes", [[len(START + MORE)], [1] * len(START), [3, 5, 10], [14, 2, 2], [18], [17, 1], [24]])
def test_a_connection_is_handed_over_with_all_its_bytes(loop: str, sizes: list[int]) -> None:
    async def test() -> None:
        async with serving() as port:
            client = await port.connect()
            rest = START + MORE
            for size in sizes:
                client.send(rest[:size])
                rest = rest[size:]
                await asyncio.sleep(0.001)
            client.send(rest)
            await port.until_taken(START + MORE)
            assert port.listener.connection_count == 0
            client.send(b"still there")
            await port.until_taken(START + MORE + b"still there")
            answer = await asyncio.wait_for(client.reader.readuntil(b"2083 "), WAIT_S)
            assert b"HTTP/1.1" not in answer
            await client.close()
            await port.until_taken(START + MORE + b"still there")

    run(test(), loop)


def test_other_connections_of_the_port_go_on(loop: str) -> None:
    async def test() -> None:
        async with serving() as port:
            plain, other = await port.connect(), await port.connect()
            other.send(START + MORE)
            await port.until_taken(START + MORE)
            for text in (b"one", b"two"):
                plain.post("/echo", text)
                assert (await plain.response()).body == text
            assert port.listener.connection_count == 1
            assert bytes(port.taken[0].received) == START + MORE
            await plain.close()
            await other.close()

    run(test(), loop)


@pytest.mark.parametrize(
    "before", [post("/echo", b"hi"), post("/later"), post("/echo", b"", "Padding: " + "x" * 5000)], ids=lambda b: b[:12]
)
def test_after_a_request_it_is_too_late(loop: str, before: bytes) -> None:
    async def test() -> None:
        async with serving() as port:
            client = await port.connect()
            client.send(before)
            await asyncio.sleep(0.02)
            client.send(START)
            await asyncio.sleep(0.02)
            for exchange in port.application.waiting:
                exchange.send_status(200, "text/plain", b"late")
            assert (await client.response()).status == 200
            assert (await client.response()).status == 505
            assert await client.ends() == b""
            await client.close()
            assert port.taken == []

    run(test(), loop)


@pytest.mark.parametrize(
    "start", [b"PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n", b"PRI / HTTP/2.0\r\n\r\n", b"pri * HTTP/2.0\r\n\r\n"]
)
def test_what_only_looks_like_http2_is_refused(loop: str, start: bytes) -> None:
    async def test() -> None:
        async with serving() as port:
            client = await port.connect()
            client.send(start)
            assert (await client.response()).status == 505
            await client.close()
            assert port.taken == []

    run(test(), loop)


def test_nobody_takes_it(loop: str) -> None:
    async def test() -> None:
        async with serving(takes=False) as port:
            client = await port.connect()
            client.send(START)
            response = await client.response()
            assert response.status == 505
            assert b"HTTP/2.0 is not spoken on this port" in response.body
            await client.close()

    run(test(), loop)


def test_the_peer_may_go_after_the_hand_over(loop: str) -> None:
    async def test() -> None:
        async with serving() as port:
            client = await port.connect()
            client.send(START)
            await client.close()
            async with asyncio.timeout(WAIT_S):
                while not (port.taken and port.taken[0].lost):
                    await asyncio.sleep(0.001)

    run(test(), loop)
