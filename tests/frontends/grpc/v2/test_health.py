"""``grpc.health.v1.Health``: Check and Watch."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest

from naiad.config.messages import message_class
from naiad.frontends.grpc.rpc.call import Unary
from naiad.frontends.grpc.v2.health import HealthService
from naiad.testing import write_model
from naiad.wire.grpc.status import STOPPING, Status
from support import event_loops
from support.event_loops import WAIT_S
from support.grpc_calls import RecordedCall
from support.grpc_transports import TRANSPORTS, carried
from support.http_application import House, identity_config, load_repository, serving

PACKAGE = "grpc.health.v1"
REQUEST = message_class("HealthCheckRequest", PACKAGE)
RESPONSE = message_class("HealthCheckResponse", PACKAGE)
SERVING, NOT_SERVING = 1, 2


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path, "one", identity_config(("0", "TYPE_FP32", "[ 1 ]")))
    return tmp_path


def play(repository: Path, scenario: Callable[[House], Coroutine[Any, Any, None]], load: bool = True) -> None:
    event_loops.play(serving(repository, load=load), scenario)


def ask(service: HealthService, method: str, service_name: str = "", raw: bytes | None = None) -> RecordedCall:
    call = RecordedCall()
    found = service.methods()[f"/grpc.health.v1.Health/{method}"]
    assert isinstance(found, Unary)
    found.handle(call, REQUEST(service=service_name).SerializeToString() if raw is None else raw)
    return call


def states(call: RecordedCall) -> list[int]:
    return [RESPONSE.FromString(m).status for m in call.messages]


@pytest.mark.parametrize("name", ["", "inference.GRPCInferenceService", "no.Such"])
def test_check_follows_readiness_whatever_the_service(repository: Path, name: str) -> None:
    async def scenario(house: House) -> None:
        service = HealthService(house.engine)
        assert (await ask(service, "Check", name).answer(RESPONSE)).status == NOT_SERVING
        await load_repository(house.manager, repository)
        assert (await ask(service, "Check", name).answer(RESPONSE)).status == SERVING
        house.engine.exiting = True
        assert (await ask(service, "Check", name).answer(RESPONSE)).status == NOT_SERVING

    play(repository, scenario, load=False)


def test_watch_tells_every_change_and_ends_when_the_server_stops(repository: Path) -> None:
    async def scenario(house: House) -> None:
        service = HealthService(house.engine)
        early = ask(service, "Watch")
        assert states(early) == [NOT_SERVING]
        await load_repository(house.manager, repository)
        await early.wait(lambda: len(early.messages) == 2)
        late = ask(service, "Watch", "any.name")
        house.engine.exiting = True
        for call in (early, late):
            assert await call.finished() == (Status.UNAVAILABLE, STOPPING)
        assert states(early) == [NOT_SERVING, SERVING, NOT_SERVING]
        assert states(late) == [SERVING, NOT_SERVING]

    play(repository, scenario, load=False)


def test_a_watcher_while_stopping_is_told_and_let_go(repository: Path) -> None:
    async def scenario(house: House) -> None:
        house.engine.exiting = True
        call = ask(HealthService(house.engine), "Watch")
        assert (states(call), call.status) == ([NOT_SERVING], (Status.UNAVAILABLE, STOPPING))

    play(repository, scenario)


def test_a_watcher_who_takes_nothing_gets_the_newest_state_later(repository: Path) -> None:
    async def scenario(house: House) -> None:
        service = HealthService(house.engine)
        slow, quick = ask(service, "Watch"), ask(service, "Watch")
        slow.congested = True
        await load_repository(house.manager, repository)
        await quick.wait(lambda: len(quick.messages) == 2)
        assert states(slow) == [NOT_SERVING]
        slow.drain()
        await slow.wait(lambda: len(slow.messages) == 2)
        assert states(slow) == [NOT_SERVING, SERVING]
        slow.give_up()
        quick.give_up()

    play(repository, scenario, load=False)


def test_watchers_are_limited_and_make_room_when_they_go(repository: Path) -> None:
    async def scenario(house: House) -> None:
        service = HealthService(house.engine, max_watchers=2)
        first, second = ask(service, "Watch"), ask(service, "Watch")
        refused = ask(service, "Watch")
        assert refused.code == Status.RESOURCE_EXHAUSTED
        assert refused.text.startswith("2 calls watch already")
        first.give_up()
        third = ask(service, "Watch")
        assert (states(third), third.status) == ([SERVING], None)
        second.give_up()
        third.give_up()

    play(repository, scenario)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRANSPORTS)
def test_watching_over_a_connection(repository: Path, kind: str) -> None:
    async def scenario(house: House) -> None:
        async with (
            carried(kind, HealthService(house.engine).methods()) as transport,
            grpc.aio.insecure_channel(transport.address) as channel,
        ):
            watch = channel.unary_stream("/grpc.health.v1.Health/Watch", response_deserializer=RESPONSE.FromString)
            gone, told = watch(b"", timeout=WAIT_S), watch(b"", timeout=WAIT_S)
            assert [(await call.read()).status for call in (gone, told)] == [SERVING, SERVING]
            gone.cancel()
            house.engine.exiting = True
            assert (await told.read()).status == NOT_SERVING
            assert (await told.code(), await told.details()) == (grpc.StatusCode.UNAVAILABLE, STOPPING)

    play(repository, scenario)


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_bytes_that_are_no_request(repository: Path, method: str) -> None:
    async def scenario(house: House) -> None:
        call = ask(HealthService(house.engine), method, raw=b"\xff\xff\xff")
        assert (call.status, call.messages) == ((Status.INTERNAL, "Unable to parse request"), [])

    play(repository, scenario)
