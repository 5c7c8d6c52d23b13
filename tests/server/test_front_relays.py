"""What a front-end process hands over as it came: how much of it is on its way, and whose response is whose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from naiad.errors import NaiadError
from naiad.frontends.grpc.rpc.call import Unary
from naiad.scheduling.admission import RequestBudget
from naiad.server.fronts.grpc_relay import GrpcRelay, RelayedStream
from naiad.server.fronts.http_relay import HttpRelay
from naiad.server.fronts.large_bodies import LargeBodies
from naiad.server.fronts.link import SEGMENT_BYTES
from naiad.server.fronts.messages import (
    CALL,
    CALL_FINISH,
    CALL_MESSAGE,
    CALL_OPEN,
    CALL_PAUSE,
    CALL_READ,
    CALL_REPLY,
    CALL_RESUME,
    HTTP_WHOLE,
    MESSAGE_BYTES,
    WINDOW_BYTES,
)

SIZE = 1 << 18


class NotedLink:
    """Notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def post(self, message: tuple[Any, ...]) -> None:
        self.sent.append(message)

    def place(self, data: bytes) -> bytes:
        return bytes(data)

    def open(self, place: bytes) -> bytes:
        return place

    def marks(self, kind: int) -> list[int]:
        return [message[1] for message in self.sent if message[0] == kind]


class NotedCall:
    """Notes what comes back, and whether it takes messages."""

    def __init__(self) -> None:
        self.metadata: dict[str, str] = {}
        self.owner: Any = None
        self.on_drained: Any = None
        self.ended = self.is_paused = False
        self.replies: list[bytes] = []
        self.statuses: list[int] = []

    def reply(self, parts: tuple[bytes, ...], size: int) -> None:
        self.replies += parts
        self.ended = True

    def finish(self, code: int = 0, text: str = "", fields: object = ()) -> None:
        self.statuses.append(int(code))
        self.ended = True

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False


@pytest.fixture
def link() -> NotedLink:
    return NotedLink()


@pytest.fixture
def budget() -> RequestBudget:
    return RequestBudget(max_bytes=4 * SIZE)


@pytest.fixture
def relay(link: Any, budget: RequestBudget) -> GrpcRelay:
    relay = GrpcRelay(LargeBodies(budget))
    relay.connect(link)
    return relay


def opened(relay: GrpcRelay, call: Any) -> RelayedStream:
    method: Any = relay.method("/stream", is_stream=True, compressed=False)
    stream: RelayedStream = method.open(call)
    return stream


def test_a_stream_waits_for_an_engine_that_does_not_read(relay: GrpcRelay, link: NotedLink) -> None:
    call = NotedCall()
    stream = opened(relay, call)
    (mark,) = link.marks(CALL_OPEN)
    sent = 0
    while not call.is_paused:
        stream.receive(bytes(SIZE))
        sent += 1
    assert WINDOW_BYTES // SIZE <= sent <= WINDOW_BYTES // SIZE + 1
    assert len(link.marks(CALL_MESSAGE)) == sent
    take = relay.handlers()
    take[CALL_READ](mark, SIZE + MESSAGE_BYTES)
    assert not call.is_paused
    stream.receive(bytes(SIZE))
    assert call.is_paused


def test_small_messages_count_as_well(relay: GrpcRelay) -> None:
    call = NotedCall()
    stream = opened(relay, call)
    for _ in range(WINDOW_BYTES // MESSAGE_BYTES):
        stream.receive(b"")
    assert not call.is_paused
    stream.receive(b"")
    assert call.is_paused


def test_a_stream_that_the_engine_has_paused_goes_on_when_both_let_it(relay: GrpcRelay, link: NotedLink) -> None:
    call = NotedCall()
    stream = opened(relay, call)
    (mark,) = link.marks(CALL_OPEN)
    take = relay.handlers()
    take[CALL_PAUSE](mark)
    stream.receive(bytes(WINDOW_BYTES))
    take[CALL_RESUME](mark)
    assert call.is_paused
    take[CALL_PAUSE](mark)
    take[CALL_READ](mark, WINDOW_BYTES + MESSAGE_BYTES)
    assert call.is_paused
    take[CALL_RESUME](mark)
    assert not call.is_paused


def test_a_response_to_a_call_that_was_cancelled_reaches_no_other(relay: GrpcRelay, link: NotedLink) -> None:
    """Also where the next call is the same object, as one that takes the memory of another is for ``id``."""
    call: Any = NotedCall()
    relay.call("/unary", call, b"first")
    call.owner.cancel()
    relay.call("/unary", call, b"second")
    first, second = link.marks(CALL)
    take = relay.handlers()
    take[CALL_REPLY](first, b"to the first")
    assert call.replies == []
    take[CALL_REPLY](second, b"to the second")
    assert call.replies == [b"to the second"]


@pytest.mark.parametrize("end", ["reply", "finish", "cancel", "disconnect"])
def test_large_calls_count_until_they_end(relay: GrpcRelay, link: NotedLink, budget: RequestBudget, end: str) -> None:
    calls: list[Any] = [NotedCall() for _ in range(5)]
    for call in calls[:4]:
        relay.call("/unary", call, bytes(SIZE))
    assert (budget.requests, budget.bytes) == (4, 4 * SIZE)
    relay.call("/unary", calls[4], bytes(SIZE))
    assert (len(calls[4].statuses), len(link.marks(CALL))) == (1, 4)
    method = relay.method("/unary", is_stream=False, compressed=False)
    assert isinstance(method, Unary) and method.check_room is not None
    with pytest.raises(NaiadError):
        method.check_room(SIZE)
    for call, mark in zip(calls[:4], link.marks(CALL), strict=True):
        if end == "reply":
            relay.handlers()[CALL_REPLY](mark, b"")
        elif end == "finish":
            relay.handlers()[CALL_FINISH](mark, 3, "no", ())
        elif end == "cancel":
            call.owner.cancel()
    if end == "disconnect":
        relay.disconnect()
    assert (budget.requests, budget.bytes) == (0, 0)


def test_small_calls_are_never_refused(relay: GrpcRelay, link: NotedLink, budget: RequestBudget) -> None:
    """Questions about health and models are among them."""
    budget.take(budget.max_bytes)
    relay.call("/unary", NotedCall(), bytes(SEGMENT_BYTES - 1))  # type: ignore[arg-type]
    assert len(link.marks(CALL)) == 1


class NotedExchange:
    """An HTTP request whose response is noted."""

    def __init__(self) -> None:
        self.connection = SimpleNamespace(peer_host=lambda: "127.0.0.1", abort=lambda: None)
        self.head = SimpleNamespace(raw=b"POST / HTTP/1.1\r\n\r\n")
        self.owner: Any = None
        self.sent: list[Any] = []
        self.is_closed = False

    def closed(self) -> bool:
        return self.is_closed

    def send(self, response: Any) -> None:
        self.sent.append(response)

    def send_status(self, status: int, *more: Any) -> None:
        self.sent.append(status)


@pytest.mark.parametrize("end", ["response", "gone", "disconnect"])
def test_large_bodies_count_until_their_response(link: Any, budget: RequestBudget, end: str) -> None:
    relay = HttpRelay(LargeBodies(budget))
    relay.connect(link)
    exchanges: list[Any] = [NotedExchange() for _ in range(5)]
    for exchange in exchanges:
        relay(exchange, bytes(SIZE))
    assert (budget.requests, budget.bytes) == (4, 4 * SIZE)
    assert [len(exchange.sent) for exchange in exchanges] == [0, 0, 0, 0, 1]
    for exchange in exchanges[:4]:
        if end == "response":
            relay.handlers()[HTTP_WHOLE](id(exchange), b"HTTP/1.1 200 OK\r\n\r\n", None)
        elif end == "gone":
            exchange.is_closed = True
            exchange.owner.cancel()
            relay.handlers()[HTTP_WHOLE](id(exchange), b"HTTP/1.1 200 OK\r\n\r\n", None)
    if end == "disconnect":
        relay.disconnect()
    assert (budget.requests, budget.bytes) == (0, 0)
