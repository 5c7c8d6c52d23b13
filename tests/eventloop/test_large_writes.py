"""Large writes are spread over the turns of the loop: who may write now, and who comes when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from naiad.eventloop.large_writes import TURN_BYTES, LargeWrites
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.http.server.connection import HttpConnection
from naiad.frontends.http.server.exchange import Exchange
from naiad.frontends.http.server.state import HttpLimits, HttpService
from naiad.frontends.http.server.streaming_response import BEHIND_BYTES, StreamingResponse
from support.h2_frames import DATA, SETTINGS, WINDOW, frame, message, numbered
from support.h2_peer import RawPeer, run
from support.http_application import Transport
from support.http_peer import post

MEGABYTE = 1 << 20
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: "
Turns = list[Callable[[], object]]


@pytest.fixture
def turns() -> Turns:
    """What is scheduled for the next turn of the loop."""
    return []


def next_turn(turns: Turns) -> None:
    due = turns[:]
    turns.clear()
    for callback in due:
        callback()


def test_who_waits_first_comes_first(turns: Turns) -> None:
    writes, done = LargeWrites(turns.append), list[int]()

    def ask(number: int) -> None:
        def write() -> None:
            done.append(number)
            writes.spend(2 * MEGABYTE)

        if writes.has_room:
            write()
        else:
            writes.wait(write)

    for number in range(7):
        ask(number)
    # Whatever has begun ends in its turn.
    assert done == [0, 1]
    next_turn(turns)
    ask(7)
    assert done == [0, 1, 2, 3]
    for _ in range(2):
        next_turn(turns)
    assert done == list(range(8))
    assert not writes.has_room
    next_turn(turns)
    assert writes.has_room and turns == []


def test_one_that_writes_nothing_in_its_turn_holds_nobody_up(turns: Turns) -> None:
    writes, done = LargeWrites(turns.append), list[str]()
    writes.spend(TURN_BYTES)
    for name in ("first", "second"):
        writes.wait(lambda name=name: done.append(name))  # type: ignore[misc]
    next_turn(turns)
    assert done == ["first", "second"] and writes.has_room and turns == []


# HTTP


class House:
    """Connections of one listener, whose exchanges wait to be answered."""

    def __init__(self, turns: Turns, connections: int) -> None:
        self.exchanges: list[Exchange] = []
        self.service = HttpService(lambda head: lambda exchange, body: self.exchanges.append(exchange), HttpLimits())
        self.service.call_soon = turns.append
        self.transports = [Transport() for _ in range(connections)]
        self.connections = [HttpConnection(self.service) for _ in range(connections)]
        for connection, transport in zip(self.connections, self.transports, strict=True):
            connection.connection_made(transport)

    def receive(self, connection: int, data: bytes) -> None:
        taking = self.connections[connection]
        memoryview(taking.get_buffer(-1))[: len(data)] = data
        taking.buffer_updated(len(data))

    def answer(self, exchange: int, letter: bytes, size: int = MEGABYTE) -> None:
        self.exchanges[exchange].send([HEAD + b"%d\r\n\r\n" % size, letter * size])

    def bodies(self) -> list[str]:
        """What each peer got, without the heads, a letter for each megabyte."""
        kinds = []
        for transport in self.transports:
            _, *answers = bytes(transport.written).split(HEAD)
            kinds.append("".join(chr(answer[-1]) for answer in answers))
        return kinds


def test_the_answers_of_a_batch_take_turns(turns: Turns) -> None:
    house = House(turns, 10)
    for index in range(10):
        house.receive(index, post("/"))
    for index in range(10):
        house.answer(index, b"a")
    assert house.bodies() == ["a"] * 4 + [""] * 6
    # Small ones need no turn.
    house.receive(0, post("/"))
    house.answer(10, b"s", 10)
    assert house.bodies()[0] == "as"
    next_turn(turns)
    assert house.bodies()[1:] == ["a"] * 7 + [""] * 2
    next_turn(turns)
    assert house.bodies()[1:] == ["a"] * 9


def test_later_answers_stay_behind_one_that_waits(turns: Turns) -> None:
    house = House(turns, 2)
    house.receive(0, post("/"))
    house.receive(1, post("/") * 3)
    house.answer(0, b"a", TURN_BYTES)
    house.answer(1, b"b")
    house.answer(2, b"c", 10)
    house.answer(3, b"d")
    # Nothing more is read of a peer whose answer waits.
    house.receive(1, post("/"))
    assert house.bodies() == ["a", ""] and len(house.exchanges) == 4
    assert house.connections[1].unsent_bytes() > 2 * MEGABYTE
    next_turn(turns)
    assert house.bodies() == ["a", "bcd"]
    assert house.connections[1].unsent_bytes() == 0
    while turns and len(house.exchanges) < 5:
        next_turn(turns)
    assert len(house.exchanges) == 5
    house.answer(4, b"e", 10)
    assert house.bodies()[1] == "bcde"


def test_a_connection_that_ends_has_its_answer_first(turns: Turns) -> None:
    house = House(turns, 2)
    house.receive(0, post("/"))
    house.receive(1, post("/", b"", "Connection: close"))
    house.answer(0, b"a", TURN_BYTES)
    house.answer(1, b"b")
    assert house.transports[1].ended
    assert house.transports[1].written.count(b"b" * MEGABYTE) == 1
    next_turn(turns)
    assert house.transports[1].written.count(b"b" * MEGABYTE) == 1


def test_a_peer_that_leaves_gets_nothing(turns: Turns) -> None:
    house = House(turns, 2)
    for index in range(2):
        house.receive(index, post("/"))
    house.answer(0, b"a", TURN_BYTES)
    house.answer(1, b"b")
    house.connections[1].connection_lost(None)
    next_turn(turns)
    assert house.bodies() == ["a", ""]
    assert house.connections[1].unsent_bytes() == 0


def test_a_stream_goes_on_when_its_pieces_have_left(turns: Turns) -> None:
    house, taken = House(turns, 2), list[bool]()
    for index in range(2):
        house.receive(index, post("/"))
    house.answer(0, b"a", TURN_BYTES)
    stream = StreamingResponse(house.exchanges[1], 200, "text/plain")
    stream.send(b"x" * (BEHIND_BYTES + 1))
    assert stream.is_behind
    stream.when_taken(lambda: taken.append(stream.is_behind))
    assert taken == []
    next_turn(turns)
    assert taken == [False]


# gRPC


def test_the_answers_to_calls_take_turns() -> None:
    async def test() -> None:
        open_windows = frame(WINDOW, 0, 0, (1 << 28).to_bytes(4, "big"))
        open_windows += frame(SETTINGS, 0, 0, b"\0\4" + (1 << 28).to_bytes(4, "big"))
        first = RawPeer(GrpcLimits())
        peers = [first] + [RawPeer(service=first.service, application=first.application) for _ in range(3)]
        for peer in peers:
            peer.send(open_windows)
        for peer in peers:
            peer.deliver(peer.open(1, "/Big") + frame(DATA, 1, 1, message(b"3000000")))
        assert sum(len(peer.transport.written) for peer in peers) < 2 * TURN_BYTES
        await first.turn()
        for peer in peers:
            assert b"".join(bytes(one.data) for one in peer.of("Data", 1)) == message(numbered(3_000_000))
            assert peer.status(1) == (0, "")

    run(test())


def test_a_call_is_served_while_large_answers_wait() -> None:
    async def test() -> None:
        first = RawPeer(GrpcLimits())
        second = RawPeer(service=first.service, application=first.application)
        first.service.large_writes.spend(TURN_BYTES)
        first.deliver(first.open(1, "/Big") + frame(DATA, 1, 1, message(b"60000")))
        assert first.of("Data", 1) == []
        assert second.serves(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert b"".join(bytes(one.data) for one in first.of("Data", 1)) == message(numbered(60_000))

    run(test())
