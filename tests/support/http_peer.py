"""A listener with a small application, and a client that sees the bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from naiad.clock import ManualClock
from naiad.frontends.http.server.exchange import Exchange, Handler
from naiad.frontends.http.server.listener import HttpListener
from naiad.frontends.http.server.state import HttpLimits
from naiad.wire.http1.head import RequestHead, encode_head
from support.event_loops import WAIT_S, until


class Application:
    """``/echo`` answers with the body, ``/big?n`` with n bytes, ``/later`` waits in ``waiting``, ``/fail`` raises."""

    def __init__(self) -> None:
        self.waiting: list[Exchange] = []
        self.handled = 0
        self.disconnected = 0
        self.arrived = asyncio.Event()

    def __call__(self, head: RequestHead) -> Handler:
        routes: dict[str, Handler] = {
            "/echo": self.echo,
            "/big": self.big,
            "/later": self.later,
            "/fail": self.fail,
        }
        return routes.get(head.target, self.not_found)

    def echo(self, exchange: Exchange, body: bytearray | memoryview) -> None:
        self.handled += 1
        exchange.send([encode_head(200, "application/octet-stream", len(body)), body])

    def big(self, exchange: Exchange, body: bytearray | memoryview) -> None:
        self.handled += 1
        size = int(exchange.head.query)
        exchange.send([encode_head(200, "application/octet-stream", size), memoryview(b"x" * size)])

    def later(self, exchange: Exchange, body: bytearray | memoryview) -> None:
        self.handled += 1
        self.waiting.append(exchange)
        exchange.owner = self
        self.arrived.set()

    def fail(self, exchange: Exchange, body: bytearray | memoryview) -> None:
        raise RuntimeError("boom")

    def not_found(self, exchange: Exchange, body: bytearray | memoryview) -> None:
        exchange.send_error(404, "Not Found")

    def cancel(self) -> None:
        self.disconnected += 1

    async def wait_for(self, waiting: int) -> None:
        """Until ``waiting`` requests of ``/later`` have arrived."""
        while len(self.waiting) < waiting:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), WAIT_S)


@dataclass
class Response:
    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    text: str = field(default="", repr=False)


class Client:
    """One connection; every wait is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, target: str, body: bytes = b"", *lines: str) -> None:
        self.send(post(target, body, *lines))

    async def response(self, has_body: bool = True) -> Response:
        raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), WAIT_S)
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
        response = Response(int(first.split()[1]), headers)
        length = int(dict(headers).get("Content-Length", "0"))
        if has_body and length:
            response.body = await asyncio.wait_for(self.reader.readexactly(length), WAIT_S)
        return response

    async def ends(self) -> bytes:
        """What still arrives before the server ends the connection."""
        return await asyncio.wait_for(self.reader.read(), WAIT_S)

    async def is_lost(self) -> bool:
        """The connection was dropped or ended, whatever was still on its way."""
        with contextlib.suppress(ConnectionError):
            await self.ends()
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def post(target: str, body: bytes = b"", *lines: str) -> bytes:
    head = "\r\n".join([f"POST {target} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *lines, "", ""])
    return head.encode("latin-1") + body


@dataclass
class Server:
    """A started listener on a free port, its application and its clock."""

    listener: HttpListener
    application: Application
    clock: ManualClock
    clients: list[Client] = field(default_factory=list)

    async def connect(self, limit: int = 1 << 24) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.listener.port, limit=limit))
        self.clients.append(client)
        return client

    def pass_time(self, seconds: int) -> None:
        """Turn the clock second by second, as the listener's own timer would see it."""
        for _ in range(seconds):
            self.clock.advance(1_000_000_000)
            self.listener.sweep()


@contextlib.asynccontextmanager
async def serving(limits: HttpLimits | None = None) -> AsyncIterator[Server]:
    application = Application()
    clock = ManualClock()
    listener = HttpListener(application, "127.0.0.1", 0, limits=limits, clock=clock)
    await listener.start()
    server = Server(listener, application, clock)
    try:
        yield server
    finally:
        for client in server.clients:
            await client.close()
        await listener.drain(0.1)
        await until(lambda: listener.connection_count == 0)
