"""Arbitrary bytes, cut at arbitrary places: the connection never raises or hangs, and cuts change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.frontends.http.server.connection import HttpConnection
from naiad.frontends.http.server.exchange import Exchange, Handler
from naiad.frontends.http.server.state import RECEIVE_BYTES, HttpLimits, HttpService
from naiad.wire.http1.head import CONTINUE, RequestHead, encode_head
from support.cut_bytes import pieces

LIMITS = HttpLimits(max_body_bytes=5000)


class MemoryTransport(asyncio.Transport):
    """A peer in memory: takes everything that is written but interim responses, and hands over what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.reading = True
        self.ended = False
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended, "written after the end"
        if data != CONTINUE:  # Whether it is sent depends on the cuts.
            self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = self.closing = True

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True


class Peer:
    """A connection whose handlers answer at once, or all together when told to (``held``)."""

    def __init__(self, held: bool = False, shared_buffer: bool = True) -> None:
        service = HttpService(self.application, LIMITS)
        service.shared_buffer = shared_buffer
        self.soon: list[Callable[[], object]] = []
        service.call_soon = self.soon.append
        self.held = held
        self.waiting: list[tuple[Exchange, bytes]] = []
        self.requests: list[tuple[str, str, bytes]] = []
        self.transport = MemoryTransport()
        self.connection = HttpConnection(service)
        self.connection.connection_made(self.transport)

    def application(self, head: RequestHead) -> Handler:
        return self.handle

    def handle(self, exchange: Exchange, body: bytearray | memoryview) -> None:
        self.requests.append((exchange.head.method, exchange.head.target, bytes(body)))
        answer = encode_head(200, "text/plain", len(body)) + bytes(body)
        if self.held:
            self.waiting.append((exchange, answer))
        else:
            exchange.send(answer)

    def answer_all(self, last_first: bool) -> None:
        while self.waiting:
            waiting, self.waiting = self.waiting, []
            for exchange, answer in reversed(waiting) if last_first else waiting:
                exchange.send(answer)

    def receive(self, data: bytes) -> None:
        """Deliver bytes the way a loop does, as long as the connection reads."""
        while data and not self.transport.closing:
            if not self.transport.reading:
                assert self.waiting, "reading is stopped with nothing to wait for"
                self.answer_all(last_first=True)
                continue
            target = memoryview(self.connection.get_buffer(-1))
            taken = min(len(target), len(data))
            target[:taken] = data[:taken]
            target.release()
            self.connection.buffer_updated(taken)
            while self.soon:
                self.soon.pop(0)()
            data = data[taken:]

    def finish(self) -> bytes:
        """End the input once it is read; gives back everything that was answered."""
        while not self.transport.reading:
            self.answer_all(last_first=True)
        if not self.connection.eof_received():
            self.transport.close()
        self.answer_all(last_first=True)
        assert self.transport.ended
        assert not self.connection.pending
        self.connection.connection_lost(None)
        return bytes(self.transport.written)


@dataclass(frozen=True)
class Request:
    raw: bytes
    seen: tuple[str, str, bytes]


@st.composite
def requests(draw: st.DrawFn, last: bool = False) -> Request:
    method = draw(st.sampled_from(["GET", "POST", "HEAD", "BREW"]))
    target = "/" + draw(st.text("abc/%20-", max_size=10))
    body = (draw(st.binary(max_size=30)) * draw(st.sampled_from([1, 5, 300])))[: LIMITS.max_body_bytes]
    lines = draw(st.lists(st.sampled_from(["Host: a", "X-Y:  z ", "Expect: 100-continue", "Empty:"]), unique=True))
    if last:
        lines.append("Connection: close")
    if draw(st.booleans()):
        lines.append(f"Content-Length: {len(body)}")
        payload = body
    else:
        lines.append("Transfer-Encoding: Chunked")
        size = draw(st.integers(1, 2000))
        parts = [body[start : start + size] for start in range(0, len(body), size)]
        payload = b"".join(b"%X;x=y\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\nT: r\r\n\r\n"
    head = "\r\n".join([f"{method} {target}?q HTTP/1.1", *lines, "", ""]).encode()
    return Request(head + payload, (method, target, body))


CUTS = st.lists(st.integers(0, 20_000), max_size=30)
STREAMS = st.lists(requests(), max_size=6).map(lambda items: b"".join(item.raw for item in items))


def exchange(parts: list[bytes], held: bool = False) -> tuple[list[tuple[str, str, bytes]], bytes]:
    peer = Peer(held=held)
    for part in parts:
        peer.receive(part)
    return peer.requests, peer.finish()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=6), st.integers(1, 30), CUTS, st.booleans(), st.booleans())
def test_pipelined_requests_are_all_answered_in_order(
    items: list[Request], repeated: int, cuts: list[int], held: bool, shared: bool
) -> None:
    items = items * repeated
    peer = Peer(held=held, shared_buffer=shared)
    for part in pieces(b"".join(item.raw for item in items), cuts):
        peer.receive(part)
    answered = peer.finish()
    assert peer.requests == [item.seen for item in items]
    for method, _, body in peer.requests:
        head = encode_head(200, "text/plain", len(body))
        assert answered.startswith(head[:-2])
        answered = answered[answered.index(b"\r\n\r\n") + 4 :]
        if method != "HEAD":
            assert answered.startswith(body)
            answered = answered[len(body) :]
    assert answered == b""


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(STREAMS, st.lists(st.tuples(st.integers(0, 20_000), st.binary(max_size=3)), max_size=3), CUTS)
def test_cuts_change_nothing_even_in_damaged_streams(
    stream: bytes, damage: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    for place, replacement in damage:
        at = place % (len(stream) + 1)
        stream = stream[:at] + replacement + stream[at + 1 :]
    assert exchange(pieces(stream, cuts)) == exchange([stream])


TOKENS = st.sampled_from(
    b"GET / HTTP/1.1\r\n|POST /a HTTP/1.0\r\n|Content-Length: |Transfer-Encoding: chunked\r\n|Connection: close\r\n|"
    b"Connection: keep-alive\r\n|\r\n|\r|\n|\r\n\r\n| |:|5|0|A|\x00".split(b"|")
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(TOKENS | st.binary(max_size=20), max_size=30).map(b"".join), CUTS)
def test_cuts_change_nothing_in_arbitrary_bytes(stream: bytes, cuts: list[int]) -> None:
    assert exchange(pieces(stream, cuts)) == exchange([stream])


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(STREAMS, requests(last=True), STREAMS, CUTS)
def test_nothing_is_read_after_a_last_request(before: bytes, last: Request, after: bytes, cuts: list[int]) -> None:
    seen, answered = exchange(pieces(before + last.raw + after, cuts))
    assert (seen, answered) == exchange([before + last.raw])
    assert seen[-1] == last.seen
    assert b"Connection: close" in answered


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(STREAMS, CUTS, st.booleans())
def test_losing_the_peer_anywhere_leaves_nothing(stream: bytes, cuts: list[int], held: bool) -> None:
    peer = Peer(held=held)
    for part in pieces(stream, cuts)[:-1]:
        peer.receive(part)
    peer.connection.connection_lost(ConnectionResetError())
    written = len(peer.transport.written)
    peer.answer_all(last_first=False)
    assert len(peer.transport.written) == written
    assert not peer.connection.pending


def test_endless_bytes_are_not_kept() -> None:
    for start in (b"GET / HTTP/1.1\r\nX: ", b"", b"\r\n", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"):
        peer = Peer()
        peer.receive(start)
        for _ in range(200):
            peer.receive(b"7" * RECEIVE_BYTES)
        assert peer.transport.ended
        assert len(peer.transport.written) < 1000
        assert peer.finish().startswith(b"HTTP/1.1 4")
