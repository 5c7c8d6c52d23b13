"""Models that front-end processes run themselves: nobody sees a difference, whatever changes or is killed."""

from __future__ import annotations

import re
import signal
import socket
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import onnx.parser
import pytest

from naiad.testing import RESPONSE_S, RunningServer, read_response, request_bytes, wait_until
from support.event_pages import EventPage
from support.front_processes import (
    LIBRARIES,
    ask,
    await_replicas,
    client_of,
    front_requests,
    input_of,
    one_connection_each,
    processes,
    replicas,
    served,
)
from support.served_models import SUM_AND_DIFFERENCE, identity, numbers, write_model

TWO = "instance_group [ { kind: KIND_CPU count: 2 } ]"
METRICS = re.compile(r"Metrics Service at 127.0.0.1:(\d+)")
EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")
ADDS = """<ir_version: 8, opset_import: ["": 17]>
adds (int32[N, 1] x) => (int32[N, 1] y) {{
  c = Constant <value_ints = [{0}]> ()
  d = Cast <to = 6> (c)
  y = Add (x, d)
}}"""


def of_two(config: str) -> str:
    return config.replace("count: 1", "count: 2")


def network(added: int) -> bytes:
    """A network that adds a number to its input."""
    return bytes(onnx.parser.parse_model(ADDS.format(added)).SerializeToString())


def write_models(folder: Path) -> Path:
    write_model(folder, "same", of_two(identity()))
    write_model(folder, "slow", of_two(identity(delay_ms=500)))
    write_model(folder, "alone", identity())
    write_model(folder, "open", "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    write_model(folder, "sum", f"max_batch_size: 8 dynamic_batching {{ }} {TWO}", graph=SUM_AND_DIFFERENCE)
    write_model(folder, "adds", f"max_batch_size: 8 {TWO}", graph=ADDS.format(1))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("replicas") / "models")


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("log")
    tracing = ("--trace-config", f"triton,file={folder / 'trace'}")
    with served(models, folder / "log", *EXPLICIT, *tracing) as running:
        await_replicas(running, {"same": 2, "slow": 2, "alone": 0, "open": 2, "sum": 2, "adds": 2})
        yield running


def added(connection: socket.socket, version: str = "") -> int:
    """What the model ``adds`` makes of 0 over a connection."""
    request = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [1, 1], "data": [0]}]}
    answer = ask(connection, f"/v2/models/adds{version}/infer", request)
    assert answer.status == 200, answer.body
    found: int = answer.json()["outputs"][0]["data"][0]
    return found


def load(connection: socket.socket, files: dict[int, int], config: str = "") -> None:
    """Load the model ``adds`` with a version for each key, which adds the value."""
    given = {f"file:{v}/model.onnx": b64encode(network(added)).decode() for v, added in files.items()}
    config = config or f'{{"max_batch_size": 8, "version_policy": {{"all": {{}}}}, {json_groups(2)}}}'
    answer = ask(connection, "/v2/repository/models/adds/load", {"parameters": {"config": config, **given}})
    assert answer.status == 200, answer.body


def json_groups(count: int) -> str:
    return f'"instance_group": [{{"kind": "KIND_CPU", "count": {count}}}]'


def inferences(server: RunningServer, model: str) -> int:
    found: int = server.get(f"/v2/models/{model}/stats").json()["model_stats"][0]["inference_count"]
    return found


@pytest.mark.parametrize("protocol", LIBRARIES)
def test_front_ends_run_models_with_an_instance_for_each_of_them(server: RunningServer, protocol: str) -> None:
    given = [input_of(LIBRARIES[protocol], name, np.full((1, 16), 3, np.int32)) for name in ("INPUT0", "INPUT1")]
    before = front_requests(server)
    with client_of(server, protocol) as client:
        for _ in range(5):
            found = client.infer("sum", given, request_id="a")
            assert (found.as_numpy("OUTPUT0").flat[0], found.get_response()["id"] if protocol == "http" else "a") == (
                6,
                "a",
            )
    assert front_requests(server)["run"] == before["run"] + 5
    wait_until(lambda: front_requests(server)["read"] == before["read"], 5, "none went to the engine")


def test_statistics_have_each_request_at_once(server: RunningServer) -> None:
    """They are read over either front end, by a caller that has just got its response from one of them."""
    with one_connection_each(server) as connections:
        before = inferences(server, "same")
        for number in range(1, 21):
            for connection in connections:
                assert ask(connection, "/v2/models/same/infer", numbers([number])).status == 200
            assert inferences(server, "same") == before + 2 * number
    with client_of(server, "grpc") as client:
        found = client.get_inference_statistics("same").model_stats[0]
    assert found.inference_count == found.execution_count == before + 40
    assert f'nv_inference_count{{model="same",version="1"}} {before + 40}' in server.metrics_page()


def test_failures_are_counted_and_have_their_texts(server: RunningServer) -> None:
    with one_connection_each(server) as connections:
        texts = set()
        for connection in connections:
            answer = ask(connection, "/v2/models/sum/infer", numbers([1]))
            assert answer.status == 400
            texts.add(answer.json()["error"])
    assert len(texts) == 1


def test_no_request_after_a_reload_runs_what_was_there_before(server: RunningServer) -> None:
    with one_connection_each(server) as connections:
        for number in range(10, 30):
            load(connections[number % 2], {1: number})
            assert [added(c) for c in connections] == [number, number]
            if number % 5 == 0:
                await_replicas(server, {"adds": 2})
                assert [added(c) for c in connections] == [number, number]


def test_a_new_version_takes_over_at_once(server: RunningServer) -> None:
    with one_connection_each(server) as connections:
        load(connections[0], {1: 100})
        await_replicas(server, {"adds": 2})
        load(connections[0], {1: 100, 2: 200})
        assert [added(c) for c in connections] == [200, 200]
        assert [added(c, "/versions/1") for c in connections] == [100, 100]


def test_no_request_after_an_unload_is_served(server: RunningServer) -> None:
    with one_connection_each(server) as connections:
        for number in range(6):
            load(connections[0], {1: number})
            await_replicas(server, {"adds": 2})
            assert ask(connections[number % 2], "/v2/repository/models/adds/unload", {}).status == 200
            request = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [1, 1], "data": [0]}]}
            assert {ask(c, "/v2/models/adds/infer", request).status for c in connections} == {404}
        load(connections[0], {1: 1})


def test_an_unload_waits_for_what_front_ends_run(server: RunningServer) -> None:
    with ThreadPoolExecutor(4) as pool:
        before = inferences(server, "slow")
        running = [pool.submit(server.infer, "slow", numbers([n])) for n in range(4)]
        in_flight = "naiad_requests_in_flight 4"
        wait_until(lambda: in_flight in server.metrics_page(), 10, "all are in flight")
        assert server.post("/v2/repository/models/slow/unload", {}).status == 200
        assert [r.result(RESPONSE_S).status for r in running] == [200] * 4
    wait_until(lambda: "slow" not in replicas(server), 10, "the model is gone")
    assert server.post("/v2/repository/models/slow/load", {}).status == 200
    await_replicas(server, {"slow": 2})
    assert inferences(server, "slow") == 0 <= before


def test_the_engine_runs_what_has_fewer_instances_by_now(server: RunningServer) -> None:
    with one_connection_each(server) as connections:
        load(connections[0], {1: 5})
        await_replicas(server, {"adds": 2})
        for count, wanted in ((1, 0), (2, 2)):
            config = f'{{"max_batch_size": 8, "version_policy": {{"all": {{}}}}, {json_groups(count)}}}'
            load(connections[0], {1: 5}, config)
            await_replicas(server, {"adds": wanted})
            assert [added(c) for c in connections] == [5, 5]


def test_traced_requests_go_to_the_engine(server: RunningServer) -> None:
    traced = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}
    assert server.post("/v2/models/same/trace/setting", traced).status == 200
    with one_connection_each(server) as connections:
        before = front_requests(server)["run"]
        assert [ask(c, "/v2/models/same/infer", numbers([1])).status for c in connections] == [200, 200]
        assert front_requests(server)["run"] == before
        plain = dict.fromkeys(traced)
        assert server.post("/v2/models/same/trace/setting", plain).status == 200
        await_replicas(server, {"same": 2})
        assert [ask(c, "/v2/models/same/infer", numbers([1])).status for c in connections] == [200, 200]
        assert front_requests(server)["run"] == before + 2


def test_a_front_end_that_stands_still_delays_statistics_by_a_second_at_most(server: RunningServer) -> None:
    with one_connection_each(server) as connections:
        stopped, other = processes(server)["front"]
        port = next(c for c in connections if c.getsockname()[1] in peers_of(other))
        stopped.send_signal(signal.SIGSTOP)
        try:
            port.settimeout(5)
            port.sendall(request_bytes("GET", "/v2/models/same/stats", None))
            assert read_response(port, "GET").status == 200
        finally:
            stopped.send_signal(signal.SIGCONT)


def peers_of(process: Any) -> set[int]:
    return {c.raddr.port for c in process.net_connections("tcp") if c.raddr}


@pytest.mark.slow
def test_what_is_killed_is_replaced_and_runs_models_again(models: Path, tmp_path: Path) -> None:
    with served(models, tmp_path / "log", *EXPLICIT) as server:
        await_replicas(server, {"same": 2, "sum": 2})
        before = inferences(server, "same")
        assert server.infer("same", numbers([1])).status == 200
        assert inferences(server, "same") == before + 1
        processes(server)["front"][0].kill()
        wait_until(lambda: len(processes(server)["front"]) == 2, 10, "another front end")
        await_replicas(server, {"same": 2, "sum": 2})
        assert inferences(server, "same") == before + 1
        (engine,) = processes(server)["engine"]
        engine.kill()
        wait_until(lambda: server.get("/v2/health/ready").status != 200, 10, "its end is noticed")
        wait_until(lambda: server.get("/v2/health/ready").status == 200, 20, "the engine is back")
        # It has another port for the metrics.
        again = replace(server, metrics=int(METRICS.findall(server.log)[-1]))
        await_replicas(again, {"same": 2, "sum": 2})
        assert server.infer("same", numbers([1])).json()["outputs"][0]["data"] == [1]
        assert (inferences(server, "same"), front_requests(again)["run"]) == (1, 1)


@pytest.mark.slow
def test_a_model_that_a_front_end_cannot_load_is_run_by_the_engine(tmp_path: Path) -> None:
    folder = write_models(tmp_path / "models")
    with served(folder, tmp_path / "log", *EXPLICIT) as server:
        await_replicas(server, {"adds": 2, "same": 2})
        (folder / "adds" / "1" / "model.onnx").write_bytes(b"no network")
        for front in processes(server)["front"]:
            front.kill()
        wait_until(lambda: "is run by the engine's process alone" in server.log, 20, "the warning")
        await_replicas(server, {"adds": 0, "same": 2})
        with one_connection_each(server) as connections:
            assert [added(c) for c in connections] == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [("--max-in-flight-requests=100",), ("--slow-requests=10",), ("--metrics-config", "histogram_latencies=true")],
)
def test_what_needs_all_requests_in_one_place_keeps_models_there(tmp_path: Path, options: tuple[str, ...]) -> None:
    folder = write_model(tmp_path / "models", "same", of_two(identity())).parent
    with served(folder, tmp_path / "log", *options) as server:
        assert server.infer("same", numbers([1])).status == 200
        wait_until(lambda: front_requests(server)["read"] == 1, 10, "the engine has run it")
        assert replicas(server) == {"same": 0}


def test_the_dashboard_shows_the_latencies_of_what_front_ends_run(server: RunningServer) -> None:
    """They keep latencies while somebody watches."""
    with EventPage(server) as page, one_connection_each(server) as connections:
        before, stop = front_requests(server), Event()

        def send() -> None:
            while not stop.wait(0.01):
                assert all(ask(c, "/v2/models/same/infer", numbers([1])).status == 200 for c in connections)

        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send)
            try:
                page.next("changes", lambda data: any(row.get("p") for row in data["set"].values()))
            finally:
                stop.set()
            sending.result(RESPONSE_S)
    found = front_requests(server)
    assert found["run"] > before["run"]
    assert found["read"] == before["read"]
