"""A server of one model over HTTP whose delays and faults are known: a program of its own, so that it keeps its times.

Run as ``python perf_peer.py NAME=VALUE ...``; the first line that it prints is its port.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
METADATA = {
    "name": "known",
    "versions": ["1"],
    "platform": "none",
    "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [4]}],
    "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [4]}],
}


class Behaviour:
    """What the server does, from NAME=VALUE words.

    Attributes:
        delay_ms: before each inference response.
        first_ms: before the first one, in place of ``delay_ms``.
        stall_ms: how long the server stands still, ``stall_after_ms`` after the second inference request and every 10 s
            from then on.
        status: of inference responses.
        fail_after: so many inference requests are answered before ``status`` counts.
        end_after: the process ends when so many inference requests have come.
        hang_up_after: from so many inference requests on, connections are closed in place of a response.
        hang_up_at: the connection of the inference request with this number is closed in place of a response.
        refuse_after: from so many inference requests on, new connections are refused.
        mute_statistics: the request for the statistics is not answered.
        mute_after: from so many inference requests on, none is answered.
        break_tls_after: from so many inference requests on, bytes that are no TLS come in place of a response.
        garbage: inference responses are no HTTP.
        chunked: inference responses have no length.
        close: the connection ends with each inference response.
        cert, key: PEM files of TLS.
        ca: PEM file of who vouches for clients, which then need a certificate.
    """

    def __init__(self, words: list[str]) -> None:
        given = dict(word.partition("=")[::2] for word in words)
        self.delay_s = float(given.get("delay_ms", 0)) / 1e3
        self.first_s = float(given.get("first_ms", given.get("delay_ms", 0))) / 1e3
        self.stall_s = float(given.get("stall_ms", 0)) / 1e3
        self.stall_after_s = float(given.get("stall_after_ms", 0)) / 1e3
        self.status = int(given.get("status", 200))
        self.fail_after = int(given.get("fail_after", 0))
        self.end_after = int(given.get("end_after", 0))
        self.hang_up_after = int(given.get("hang_up_after", 0))
        self.hang_up_at = int(given.get("hang_up_at", 0))
        self.refuse_after = int(given.get("refuse_after", 0))
        self.mute_after = int(given.get("mute_after", 0))
        self.break_tls_after = int(given.get("break_tls_after", 0))
        self.garbage = "garbage" in given
        self.mute_statistics = "mute_statistics" in given
        self.chunked = "chunked" in given
        self.close = "close" in given
        self.cert, self.key, self.ca = given.get("cert"), given.get("key"), given.get("ca")
        self.inferences = 0
        self.listener: asyncio.Server | None = None


class Exchange(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data
        if data.startswith(b"\x16"):
            # A client that begins with TLS.
            self.send(400, b"plain HTTP is spoken here")
            self.transport.close()
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            found = LENGTH.search(self.received, 0, end + 2)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self.received) < whole:
                return
            line = self.received.partition(b"\r\n")[0].decode()
            self.received = self.received[whole:]
            self.answer(line.split(" ")[1])

    def answer(self, path: str) -> None:
        if path == "/v2/models/known":
            self.send(200, json.dumps(METADATA).encode())
        elif path.endswith("/infer"):
            self.infer()
        elif path.endswith("/stats") and self.behaviour.mute_statistics:
            return
        else:
            self.send(404, b'{"error":"not here"}')

    def infer(self) -> None:
        behaviour = self.behaviour
        behaviour.inferences += 1
        count = behaviour.inferences
        loop = asyncio.get_running_loop()
        if behaviour.end_after and count > behaviour.end_after:
            signal.raise_signal(signal.SIGKILL)
        if count == behaviour.hang_up_at or 0 < behaviour.hang_up_after < count:
            self.transport.abort()
            return
        if behaviour.break_tls_after and count > behaviour.break_tls_after:
            os.write(self.transport.get_extra_info("socket").fileno(), b"this is no record of TLS")
            return
        if behaviour.mute_after and count > behaviour.mute_after:
            return
        if behaviour.refuse_after and count > behaviour.refuse_after and behaviour.listener is not None:
            behaviour.listener.close()
        # The first request is the one that the client waits for before it measures.
        if count == 2 and behaviour.stall_s:
            loop.call_later(behaviour.stall_after_s, stand_still, behaviour)
        delay_s = behaviour.first_s if count == 1 else behaviour.delay_s
        if delay_s:
            loop.call_later(delay_s, self.respond, count)
        else:
            self.respond(count)

    def respond(self, count: int) -> None:
        behaviour = self.behaviour
        if behaviour.garbage:
            self.transport.write(b"220 this is no HTTP\r\n\r\n")
        elif behaviour.status != 200 and count > behaviour.fail_after:
            self.send(behaviour.status, b'{"error":"the peer was told to fail"}')
        else:
            self.send(200, b'{"model_name":"known","outputs":[{"name":"OUTPUT0"}]}', infers=True)

    def send(self, status: int, body: bytes, *, infers: bool = False) -> None:
        close = infers and self.behaviour.close
        head = f"HTTP/1.1 {status} X\r\n" + "Connection: close\r\n" * close
        if infers and self.behaviour.chunked:
            pieces = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:]))
            self.transport.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n")
        else:
            self.transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        if close:
            self.transport.close()


def stand_still(behaviour: Behaviour) -> None:
    """Do nothing at all for a while, and again ten seconds later."""
    asyncio.get_running_loop().call_later(10, stand_still, behaviour)
    time.sleep(behaviour.stall_s)


async def serve(behaviour: Behaviour) -> None:
    """Serve until the process is ended."""
    context = None
    if behaviour.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(behaviour.cert, behaviour.key)
        if behaviour.ca:
            context.load_verify_locations(behaviour.ca)
            context.verify_mode = ssl.CERT_REQUIRED
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Exchange(behaviour), "127.0.0.1", 0, ssl=context, backlog=1024)
    behaviour.listener = server
    print(server.sockets[0].getsockname()[1], flush=True)
    # Its end is noticed even if the test that started it is gone.
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextmanager
def peer(**behaviour: object) -> Iterator[str]:
    """A running peer: its ``host:port``."""
    words = [f"{name}={value}" for name, value in behaviour.items()]
    # Imported here: as a program this file stands alone.
    from support.peer_process import running

    with running(Path(__file__), words) as address:
        yield address


if __name__ == "__main__":
    asyncio.run(serve(Behaviour(sys.argv[1:])))
