"""The gate costs a look once for each head, and nothing where it asks for nothing."""

from __future__ import annotations

import hashlib

from naiad.clock import ManualClock
from naiad.frontends.access.gate import Gate
from naiad.frontends.access.keys import KeyRing
from naiad.frontends.http.server.access_gate import guarded
from naiad.frontends.http.server.exchange import Exchange, Handler
from naiad.options.api_key import read_api_key
from naiad.options.restriction import Restriction
from naiad.wire.http1.head import RequestHead
from support.event_loops import run
from support.http_application import Peer

SECOND = 1_000_000_000


def application(head: RequestHead) -> Handler:
    def answer(exchange: Exchange, body: bytearray | memoryview) -> None:
        exchange.send_status(200, "text/plain", b"yes")

    return answer


def test_an_open_gate_is_not_there() -> None:
    assert Gate().is_open
    assert guarded(application, Gate()) is application


def test_the_same_head_is_looked_at_once() -> None:
    looks: list[str] = []

    def look(target: str) -> str:
        looks.append(target)
        return "inference"

    async def test() -> None:
        gate = Gate([Restriction(("inference",), "k", "v")])
        peer = Peer(guarded(application, gate, look))
        for headers, status in (({"k": "v"}, 200), ({"k": "w"}, 403)):
            looks.clear()
            for _ in range(20):
                assert (await peer.ask("GET", "/x", headers=headers)).status == status
            assert looks == ["/x"]
        peer.close()

    run(test())


def test_limits_by_the_clock() -> None:
    async def test() -> None:
        clock = ManualClock()
        hashed = hashlib.sha256(b"key").hexdigest()
        ring = KeyRing([read_api_key(f"a infer sha256:{hashed} rate=2 burst=2")], clock)
        peer = Peer(guarded(application, Gate((), ring)))

        async def ask() -> int:
            answer = await peer.ask("GET", "/v2", headers={"Authorization": "Bearer key"})
            assert (answer.status == 429) is ("Retry-After" in answer.headers)
            return answer.status

        assert [await ask() for _ in range(4)] == [200, 200, 429, 429]
        clock.advance(SECOND // 2)
        assert [await ask() for _ in range(2)] == [200, 429]
        clock.advance(60 * SECOND)
        assert [await ask() for _ in range(3)] == [200, 200, 429]
        peer.close()

    run(test())


def test_values_are_compared_as_bytes() -> None:
    gate = Gate([Restriction(("trace",), "Key", "grün")])
    assert gate.admit("trace", {"key": "grün".encode().decode("latin-1")}) is None
