"""The dashboard as a browser asks for it: files, events, what they cost, and who gets which of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from naiad.testing import RunningServer, serving, write_model
from support.api_keys import hashed
from support.event_pages import EventPage
from support.http_application import identity_config

CONFIG = identity_config(("0", "TYPE_FP32", "[ 2 ]"), more="max_batch_size: 8\ndynamic_batching { }")
REQUEST = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
WATCHER, OWNER = "watcher-key", "owner-key"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("dashboard")
    repository = folder / "models"
    write_model(repository, "m", CONFIG, versions=(1,))
    write_model(repository, "failed", 'backend: "onnxruntime"\n' + CONFIG.replace('backend: "identity"', ""))
    options = ("--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false", "--strict-readiness=false")
    with serving(folder / "log", "--model-repository", repository, *options) as running:
        yield running


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with keys: one that observes, one that may do all."""
    folder = tmp_path_factory.mktemp("locked")
    write_model(folder / "models", "m", CONFIG)
    keys = (f"watcher observe {hashed(WATCHER)}", f"owner infer,manage,observe {hashed(OWNER)}")
    with serving(folder / "log", folder / "models", *(f"--api-key={key}" for key in keys)) as running:
        yield running


def bearer(key: str) -> tuple[tuple[str, str], ...]:
    return (("Authorization", f"Bearer {key}"),)


def rows_of(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{row['n']}:{row['v']}": row for row in found["set"].values()}


# The files


def test_the_page_loads_nothing_but_files_of_this_server(server: RunningServer) -> None:
    page = server.get("/dashboard/")
    assert (page.status, page.type) == (200, "text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    for entry in files("naiad.frontends.dashboard").joinpath("static").iterdir():
        text = entry.read_text()
        served = server.get(f"/dashboard/{entry.name}")
        assert (served.status, served.body) == (200, text.encode())
        assert served.headers["content-security-policy"] == policy
        # Namespaces of SVG are names, not addresses that are loaded.
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("https?", "") or entry.name in {
            "snippets.js",
            "infer.js",
            "stream.js",
            "tryit.js",
        }
        assert "style=" not in text and "innerHTML" not in text and "eval(" not in text


def test_the_page_is_small() -> None:
    static = files("naiad.frontends.dashboard").joinpath("static")
    size = sum(len(gzip.compress(entry.read_bytes())) for entry in static.iterdir())
    assert size <= 150_000


def test_paths_without_a_file_and_wrong_methods(server: RunningServer) -> None:
    assert server.get("/dashboard").headers["location"] == "/dashboard/"
    for path in ("/dashboard/none.js", "/dashboard/../options.py", "/dashboard/%2e%2e/access.py", "/dashboard/a/b"):
        assert server.get(path).status == 404
    refused = server.request("DELETE", "/dashboard/")
    assert (refused.status, refused.headers["allow"]) == (405, "GET")


# Events


@pytest.mark.slow
def test_a_page_learns_the_port_of_grpcio(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "m", CONFIG)
    with (
        serving(tmp_path / "log", tmp_path / "models", "--grpc-transport=grpcio") as server,
        EventPage(server) as page,
    ):
        assert page.next("hello")["grpc"] == [server.grpc, False]


def test_a_page_gets_all_rows_and_then_changes(server: RunningServer) -> None:
    with EventPage(server) as page:
        hello = page.next("hello")
        assert (hello["name"], hello["keys"], hello["slow"]) == ("triton", False, False)
        # The port that is listened on, not encrypted; --grpc-port=0 asked for any.
        assert hello["grpc"] == [server.grpc, False]
        rows = rows_of(page.next("all"))
        assert rows["m:1"] | {"m": 0} == {
            "n": "m",
            "v": "1",
            "s": "READY",
            "w": "",
            "k": "identity",
            "m": 0,
            "q": 0,
            "i": [1, 0, 0],
            "r": 0,
            "e": 0,
            "p": None,
            "b": None,
            "d": None,
            "u": 0,
        }
        assert rows["failed:1"]["s"] == "UNAVAILABLE"
        assert "model.onnx" in rows["failed:1"]["w"]
        number = next(iter(page.next("changes")["gone"]), None)
        assert number is None
        for _ in range(20):
            assert server.infer("m", REQUEST).status == 200
        busy = page.next("changes", lambda data: any("r" in row for row in data["set"].values()))
        (row,) = busy["set"].values()
        assert row["r"] > 0
        # What did not change is not sent again.
        assert not row.keys() & {"n", "v", "s", "k", "m", "i"}
        assert row["p"][0] <= row["p"][1]
        assert row["b"] == 1
        idle = page.next("changes", lambda data: any(row.get("r") == 0 for row in data["set"].values()))
        assert next(iter(idle["set"].values()))["p"] is None


def test_a_failure_counts_as_one(server: RunningServer) -> None:
    with EventPage(server) as page:
        page.next("all")
        wrong = {"inputs": [{**REQUEST["inputs"][0], "shape": [9, 2], "data": [0] * 18}]}
        assert server.infer("m", wrong).status == 400
        # A request that never reached its model is none of its failures; the stream goes on.
        page.next("changes")


def test_a_model_that_is_unloaded_loses_its_figures(server: RunningServer) -> None:
    with EventPage(server) as page:
        page.next("all")
        assert server.post("/v2/repository/models/m/unload", {}).status == 200
        gone = page.next("changes", lambda data: any(row.get("s") == "UNAVAILABLE" for row in data["set"].values()))
        (row,) = [row for row in gone["set"].values() if row.get("s") == "UNAVAILABLE"]
        assert (row["w"], row["r"], row["i"]) == ("unloaded", None, None)
        assert server.post("/v2/repository/models/m/load", {}).status == 200
        page.next("changes", lambda data: any(row.get("s") == "READY" for row in data["set"].values()))


def test_a_page_asks_for_a_model_in_detail_and_for_the_log(server: RunningServer) -> None:
    with EventPage(server) as page:
        path = f"/dashboard/page/{page.next('hello')['page']}"
        assert server.post(path, {"model": "m", "version": "1", "log": True}).status == 200
        assert any("loading: m:1" in text for _, text in page.next("log")["lines"])
        server.infer("m", REQUEST)
        detail = page.next("detail", lambda data: bool(data["sizes"]))
        assert (detail["n"], detail["sizes"]) == ("m", {"1": 1})
        assert len(detail["stages"]) == 4
        assert server.post(path, {"model": 3}).status == 400
    assert server.post("/dashboard/page/unknown", {}).status == 404


def test_the_number_of_pages_is_bounded(server: RunningServer) -> None:
    pages = [EventPage(server) for _ in range(16)]
    try:
        assert all(page.status == 200 for page in pages)
        assert server.get("/dashboard/events").status == 503
    finally:
        for page in pages:
            page.socket.close()
    # The connections are gone a moment later.
    with EventPage(server) as page:
        assert page.status in (200, 503)


@pytest.mark.slow
def test_a_server_that_stops_ends_the_streams(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "m", CONFIG)
    with serving(tmp_path / "log", tmp_path / "models") as running, EventPage(running) as page:
        page.next("all")
        running.signal()
        assert {name for name, _ in page.rest()} <= {"changes"}
        assert running.wait_exit(10) == 0


# The configuration


def test_every_value_has_its_origin(server: RunningServer) -> None:
    found = server.get("/dashboard/explain/m").json()
    fields = {row["path"]: row for row in found["fields"]}
    assert found["file"] == "config.pbtxt"
    assert fields["max_batch_size"]["origin"].startswith("config.pbtxt:")
    assert fields["name"]["origin"] == "the model's files"
    assert (found["written"]["max_batch_size"], "runtime" in found["written"]) == (8, False)
    assert server.get("/dashboard/explain/unknown").status == 404


@pytest.mark.parametrize(
    ("change", "line", "text"),
    [
        ('"max_batch_sise": 8', 1, "did you mean 'max_batch_size'"),
        ('"max_batch_size": "many"', 1, "max_batch_size"),
        ('"max_batch_size": 4, "dynamic_batching": {"preferred_batch_size": [9]}', 1, "found 9 with max_batch_size 4"),
        ('"max_batch_size": 4 5', None, ""),
    ],
)
def test_problems_of_an_edited_configuration(server: RunningServer, change: str, line: int | None, text: str) -> None:
    (found, *_) = server.post("/dashboard/check/m", {"config": "{" + change + "}"}).json()["problems"]
    assert text in found["message"]
    if line is not None:
        assert found["line"] == line


def test_an_edited_configuration_without_problems_loads(server: RunningServer) -> None:
    written = server.get("/dashboard/explain/m").json()["written"]
    text = json.dumps(written | {"max_batch_size": 16})
    assert server.post("/dashboard/check/m", {"config": text}).json() == {"problems": []}
    # What a configuration leaves open, the check takes from the model as a load would.
    assert server.post("/dashboard/check/m", {"config": "{}"}).json() == {"problems": []}
    assert server.post("/v2/repository/models/m/load", {"parameters": {"config": text}}).status == 200
    after = {row["path"]: row for row in server.get("/dashboard/explain/m").json()["fields"]}
    assert after["max_batch_size"]["value"] == 16
    assert after["max_batch_size"]["origin"].startswith("the load request:")
    assert server.post("/v2/repository/models/m/load", {}).status == 200


def test_bad_bodies_of_a_check(server: RunningServer) -> None:
    assert server.post("/dashboard/check/m", {"config": 3}).status == 400
    assert server.post("/dashboard/check/m", b"[").status == 400
    assert server.post("/dashboard/check/none", {"config": "{}"}).status == 404
    assert server.post("/dashboard/check/m", {"config": " " * (1 << 20) + "{}"}).status == 400


# Access


def test_files_need_no_key_and_data_does(locked: RunningServer) -> None:
    assert locked.get("/dashboard/").status == 200
    for path in ("/dashboard/events", "/dashboard/explain/m"):
        refused = locked.get(path)
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert "content-security-policy" in refused.headers


def test_a_key_that_only_observes_sees_neither_reasons_nor_the_log(locked: RunningServer) -> None:
    with EventPage(locked, bearer(WATCHER)) as page:
        hello = page.next("hello")
        assert (hello["allowed"], hello["keys"]) == (["model-config", "statistics"], True)
        assert "w" not in rows_of(page.next("all"))["m:1"]
        path = f"/dashboard/page/{hello['page']}"
        wanted = b'{"log": true, "model": "m", "version": "1"}'
        assert locked.request("POST", path, wanted, bearer(WATCHER)).status == 200
        page.next("detail")
        page.next("changes")
        assert "log" not in page.seen
    refused = locked.request("POST", "/dashboard/check/m", b'{"config": "{}"}', bearer(WATCHER))
    assert (refused.status, "manage is needed" in refused.error) == (403, True)


def test_a_key_that_manages_sees_all(locked: RunningServer) -> None:
    with EventPage(locked, bearer(OWNER)) as page:
        assert "model-repository" in page.next("hello")["allowed"]
        assert rows_of(page.next("all"))["m:1"]["w"] == ""
    checked = locked.request("POST", "/dashboard/check/m", b'{"config": "{}"}', bearer(OWNER))
    assert checked.json() == {"problems": []}


@pytest.mark.parametrize(
    "headers",
    [
        (("Sec-Fetch-Site", "cross-site"),),
        (("Sec-Fetch-Site", "same-site"),),
        (("Origin", "https://evil.example"),),
        (("Origin", "null"),),
    ],
)
def test_pages_of_other_sites_get_nothing_and_steer_nothing(
    server: RunningServer, headers: tuple[tuple[str, str], ...]
) -> None:
    assert server.request("GET", "/dashboard/events", None, headers).status == 403
    assert server.request("GET", "/dashboard/explain/m", None, headers).status == 403
    assert server.request("POST", "/dashboard/check/m", b'{"config": "{}"}', headers).status == 403
    for path in ("/v2/repository/models/m/unload", "/v2/logging", "/v2/models/m/routes", "/v2/trace/setting"):
        refused = server.request("POST", path, b"{}", headers)
        assert refused.status == 403
        assert "--http-cors-origin" in refused.error
    assert server.get("/v2/models/m/ready").status == 200


def test_the_own_page_steers(server: RunningServer) -> None:
    own = (("Sec-Fetch-Site", "same-origin"), ("Origin", "http://localhost"))
    assert server.request("POST", "/v2/repository/index", b"{}", own).status == 200
    assert server.request("POST", "/v2/repository/index", b"{}", (("Origin", "http://localhost"),)).status == 200


def test_another_name_of_this_machine_is_refused(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /dashboard/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        head = connection.recv(1 << 16)
    assert head.startswith(b"HTTP/1.1 403")
    assert b"evil.example" in head


@pytest.mark.slow
def test_the_dashboard_can_be_switched_off(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "m", CONFIG)
    with serving(tmp_path / "log", tmp_path / "models", "--dashboard=off") as running:
        assert running.get("/dashboard/").status == 404
        assert running.get("/dashboard/events").status == 404
