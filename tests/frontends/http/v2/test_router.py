"""Which path and method lead where, as the reference has them; health, statistics and the index through HTTP."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from naiad.clock import ManualClock
from naiad.frontends.access.gate import Gate
from naiad.frontends.access.keys import KeyRing
from naiad.frontends.http.server.access_gate import guarded
from naiad.frontends.http.v2.router import MAX_HANDLERS, MAX_KEY
from naiad.options.api_key import read_api_key
from naiad.options.restriction import Restriction
from naiad.shared_memory.registry import DISABLED
from naiad.testing import write_model
from naiad.wire.http1.head import parse_head
from support.api_keys import hashed
from support.event_loops import run
from support.http_application import JSON, TEXT, House, Peer, identity_config, play, serving
from support.kept_objects import kept

CONFIG = identity_config(("0", "TYPE_FP32", "[ 1 ]"))
INFER = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path, "m", CONFIG)
    write_model(tmp_path, "stats", CONFIG)
    return tmp_path


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/v2", 200),
        ("GET", "/v2?x=1", 200),
        ("GET", "/v2/", 404),
        ("GET", "/v1", 404),
        ("GET", "/", 404),
        ("POST", "/v2", 405),
        ("GET", "/v2/health/live", 200),
        ("GET", "/v2/health/ready", 200),
        ("POST", "/v2/health/ready", 405),
        ("GET", "/v2/health", 404),
        ("GET", "/v2/models/m", 200),
        ("GET", "/v2/models/m/", 404),
        ("GET", "/v2/models", 404),
        ("GET", "/v2/models/m/versions/1", 200),
        ("GET", "/v2/models/m/versions/001", 200),
        ("GET", "/v2/models/m/versions/x", 404),
        ("GET", "/v2/models/m/versions/-1", 404),
        ("GET", "/v2/models/m/versions/", 404),
        ("GET", "/v2/models/m/versions/9", 404),
        ("GET", "/v2/models/m/ready", 200),
        ("GET", "/v2/models/m/versions/1/ready", 200),
        ("GET", "/v2/models/m/config", 200),
        ("GET", "/v2/models/m/stats", 200),
        ("GET", "/v2/models/m/versions/1/stats", 200),
        ("GET", "/v2/models/stats", 200),
        ("GET", "/v2/models/stats/config", 200),
        ("POST", "/v2/models/stats", 405),
        ("GET", "/v2/models/m/infer", 405),
        ("PUT", "/v2/models/m/infer", 405),
        ("GET", "/v2/models/m%2Fx", 404),
        ("POST", "/v2/repository/index", 200),
        ("POST", "/v2/repository/any/index", 200),
        ("GET", "/v2/repository/index", 405),
        ("POST", "/v2/repository/models/m/load", 503),
        ("POST", "/v2/repository/models/m/unload", 503),
        ("GET", "/v2/repository/models/m/load", 405),
        ("GET", "/v2/systemsharedmemory/status", 200),
        ("GET", "/v2/cudasharedmemory/region/r/status", 404),
        ("POST", "/v2/systemsharedmemory/status", 405),
        ("GET", "/v2/systemsharedmemory/region/r/other", 404),
        ("POST", "/v2/systemsharedmemory/register", 501),
        ("GET", "/v2/cudasharedmemory/register", 405),
        ("POST", "/v2/systemsharedmemory/unregister", 501),
        ("POST", "/v2/cudasharedmemory/region/r/register", 501),
        ("GET", "/v2/logging", 200),
        ("GET", "/v2/trace/setting", 200),
        ("GET", "/v2/models/m/trace/setting", 200),
    ],
)
def test_paths_and_methods(repository: Path, method: str, target: str, status: int) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.ask(method, target)
        assert answer.status == status
        if status == 405:
            assert answer.error == "Method Not Allowed"
            assert answer.headers["Allow"] in ({"GET", "POST"} - {method})
        if status == 501:
            assert answer.error == DISABLED

    play(repository, scenario)


def test_unknown_paths_and_wrong_methods_as_the_reference_says_them(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.ask("GET", "/nope")
        assert (answer.type, answer.body) == (TEXT, b'{"error":"Not Found"}')
        assert answer.headers["Link"] == '</openapi.json>; rel="service-desc"'
        assert (await peer.ask("GET", "/openapi.json")).status == 200
        assert (await peer.ask("DELETE", "/v2/logging")).headers["Allow"] == "GET, POST"
        assert (await peer.ask("GET", "/v2/models/m/infer")).type == TEXT
        assert (await peer.ask("POST", "/v2")).type == JSON

    play(repository, scenario)


def test_handlers_are_kept_within_bounds(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        sizes = [len(kept(house.router))]
        for n in range(3 * MAX_HANDLERS):
            assert (await peer.ask("GET", f"/v2/models/{n}")).status == 404
            if n % (MAX_HANDLERS // 2) == MAX_HANDLERS // 2 - 1:
                sizes.append(len(kept(house.router)))
        half = sizes[1] - sizes[0]
        assert half > MAX_HANDLERS // 2
        assert max(sizes) - sizes[0] < 2.5 * half
        assert (await peer.infer("m", INFER)).status == 200

    play(repository, scenario)


MADE_UP = {
    "a path without a route": ("GET", "/{n}{padding}"),
    "a path that needs no key": ("GET", "/v2/health/{n}{padding}"),
    "a method": ("X{n}", "/v2/{padding}"),
    "a method for a model": ("X{n}", "/v2/models/{padding}/infer"),
    "a name of a model": ("GET", "/v2/models/{n}{padding}"),
    "a name of a region": ("GET", "/v2/systemsharedmemory/region/{n}{padding}/status"),
}


@pytest.mark.parametrize(("method", "target"), MADE_UP.values(), ids=MADE_UP)
@pytest.mark.parametrize("length", [MAX_KEY - 100, 60_000])
def test_what_callers_make_up_is_not_kept_for_ever(repository: Path, method: str, target: str, length: int) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        def ask(numbers: range) -> None:
            for n in numbers:
                line = f"{method} {target}".format(n=n, padding="x" * length)
                house.router(parse_head(f"{line} HTTP/1.1\r\nHost: a\r\n\r\n".encode()))

        ask(range(100))
        tracemalloc.start()
        try:
            ask(range(100, 500))
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # All of them would be 1.6 MB and more.
        assert kept_bytes < 1_000_000
        assert (await peer.infer("m", INFER)).status == 200

    play(repository, scenario)


def test_a_model_has_one_handler_for_each_of_its_paths(repository: Path) -> None:
    """What handlers remember of a model would be kept once more for each of them."""

    async def scenario(house: House, peer: Peer) -> None:
        def handler(version: str) -> object:
            raw = f"POST /v2/models/m{version}/infer HTTP/1.1\r\nHost: a\r\n\r\n".encode()
            return house.router(parse_head(raw))

        whole, first = handler(""), handler("/versions/1")
        assert whole is not first
        for zeros in ("0", "000", "0" * 100):
            assert handler(f"/versions/{zeros}1") is first
        for n in range(MAX_HANDLERS + 50):
            handler(f"/versions/{n + 2}")
        assert handler("") is whole
        assert handler("/versions/01") is first
        assert (await peer.infer("m/versions/001", INFER)).status == 200

    play(repository, scenario)


# Health


ASKS_FOR_JSON = {"Accept": "text/html;q=0.5, Application/JSON; q=1"}


def test_health_as_json_for_those_who_ask_for_it(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        async def ask(path: str) -> tuple[int, str, Any]:
            answer = await peer.ask("GET", path, b"", ASKS_FOR_JSON)
            return answer.status, answer.type, json.loads(answer.body)

        assert await ask("/v2/health/live") == (200, JSON, {"live": True})
        assert await ask("/v2/health/ready") == (200, JSON, {"ready": True})
        assert await ask("/v2/models/m/ready") == (200, JSON, {"name": "m", "ready": True})
        assert await ask("/v2/models/nope/ready") == (400, JSON, {"name": "nope", "ready": False})
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/m/ready"):
            answer = await peer.ask("GET", path, b"", {"Accept": "*/*"})
            assert (answer.status, answer.type, answer.body) == (200, TEXT, b"")
        house.engine.exiting = True
        assert await ask("/v2/health/ready") == (400, JSON, {"ready": False})

    play(repository, scenario)


def test_health_while_loading_and_stopping(repository: Path) -> None:
    async def test() -> None:
        async with serving(repository, load=False) as house:
            with house.peer() as peer:
                live = await peer.ask("GET", "/v2/health/live")
                assert (live.status, live.type, live.body) == (200, TEXT, b"")
                ready = await peer.ask("GET", "/v2/health/ready")
                assert (ready.status, ready.type, ready.body) == (400, TEXT, b"")
                told = await peer.ask("GET", "/v2/health/ready?verbose=true")
                assert (told.status, told.error) == (400, "not ready: models are loading")
                house.engine.exiting = True
                assert (await peer.ask("GET", "/v2/health/live")).status == 400
                told = await peer.ask("GET", "/v2/health/ready?verbose=true")
                assert told.error == "not ready: the server is shutting down"

    run(test())


def test_what_is_not_ready_is_told_when_asked(repository: Path) -> None:
    write_model(repository, "bad", CONFIG.replace("identity", "nonsense"))

    async def scenario(house: House, peer: Peer) -> None:
        assert (await peer.ask("GET", "/v2/health/ready")).status == 400
        assert (await peer.ask("GET", "/v2/health/live")).status == 200
        told = await peer.ask("GET", "/v2/health/ready?verbose=true")
        assert told.error.startswith("not ready: bad:1: ")
        assert "nonsense" in told.error

    play(repository, scenario)


def test_only_who_may_read_the_index_is_told_why_a_model_is_not_ready(repository: Path) -> None:
    write_model(repository, "bad", CONFIG.replace("identity", "nonsense"))
    keys = [read_api_key(f"ops manage {hashed('ops')}"), read_api_key(f"user infer {hashed('user')}")]
    asked = "/v2/health/ready?verbose=true"

    async def scenario(house: House, peer: Peer) -> None:
        with house.peer(guarded(house.router, Gate(keys=KeyRing(keys, ManualClock())))) as keyed:
            for _ in range(3):
                for headers in ({}, {"Authorization": "Bearer user"}, {"Authorization": "Bearer nobody"}):
                    answer = await keyed.ask("GET", asked, headers=headers)
                    assert (answer.status, answer.body) == (400, b"")
                told = await keyed.ask("GET", asked, headers={"Authorization": "Bearer ops"})
                assert (told.status, told.error.startswith("not ready: bad:1: ")) == (400, True)
        restriction = Restriction(("model-repository",), "admin-key", "s3cret")
        with house.peer(guarded(house.router, Gate([restriction]))) as restricted:
            answer = await restricted.ask("GET", asked)
            assert (answer.status, answer.body) == (400, b"")
            assert "nonsense" in (await restricted.ask("GET", asked, headers={"admin-key": "s3cret"})).error

    play(repository, scenario)


def test_a_model_that_is_not_ready(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for target in ("nope", "m/versions/9"):
            answer = await peer.ask("GET", f"/v2/models/{target}/ready")
            assert (answer.status, answer.type, answer.error) == (400, TEXT, "Model version not ready")
        answer = await peer.ask("GET", f"/v2/models/m/versions/{'9' * 30}/ready")
        assert answer.status == 400
        assert "failed to get model version from specified version string" in answer.error
        answer = await peer.ask("GET", "/v2/models/m/ready")
        assert (answer.status, answer.type, answer.body) == (200, TEXT, b"")

    play(repository, scenario)


# Statistics and index


def test_statistics_count_requests(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for _ in range(3):
            assert (await peer.infer("m", INFER)).status == 200
        (found,) = (await peer.ask("GET", "/v2/models/m/stats")).json["model_stats"]
        assert (found["inference_count"], found["execution_count"]) == (3, 3)
        assert found["inference_stats"]["success"]["count"] == 3
        assert found["batch_stats"][0]["batch_size"] == 1
        everything = (await peer.ask("GET", "/v2/models/stats")).json["model_stats"]
        assert [m["name"] for m in everything] == ["m", "stats"]
        answer = await peer.ask("GET", "/v2/models/nope/stats")
        assert (answer.status, answer.error) == (400, "requested model 'nope' is not available")

    play(repository, scenario)


def test_the_index(repository: Path) -> None:
    write_model(repository, "bad", CONFIG.replace("identity", "nonsense"))

    async def scenario(house: House, peer: Peer) -> None:
        async def names(body: bytes) -> list[str]:
            answer = await peer.ask("POST", "/v2/repository/index", body)
            assert answer.status == 200
            return [row["name"] for row in answer.json]

        assert await names(b"") == ["bad", "m", "stats"]
        assert await names(b"{}") == ["bad", "m", "stats"]
        assert await names(b'{"ready":false}') == ["bad", "m", "stats"]
        assert await names(b'{"ready":true}') == ["m", "stats"]
        refused = {
            b"{": "parse",
            b"[]": "parse",
            b"\xff": "parse",
            b'{"ready":1}': "INT",
            b'{"ready":null}': "found null",
        }
        for body, word in refused.items():
            answer = await peer.ask("POST", "/v2/repository/index", body)
            assert answer.status == 400
            assert word in answer.error

    play(repository, scenario)
