"""The memory of models on a real server: measured, kept to a budget, loaded on demand, unloaded when idle."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http

from naiad.testing import RunningServer, read_response, request_bytes, serving, wait_until
from support.config_texts import parameter
from support.served_models import identity, numbers, write_model
from support.versioned_models import ONNX, PYTHON, SCALES, served, shares, write_onnx, write_python

MB = 1 << 20
EXPLICIT = "--model-control-mode=explicit"
SLOW_START = SCALES.replace(
    "        self.factor", "        while not os.path.exists(GO):\n            time.sleep(0.01)\n        self.factor"
)

HOLDS = SCALES.replace("        self.factor", "        self.weights = np.ones(SIZE, np.uint8)\n        self.factor")


@contextmanager
def server_of(tmp_path: Path, *arguments: object) -> Iterator[RunningServer]:
    with serving(tmp_path / "log", tmp_path / "models", *arguments) as server:
        yield server


def states(server: RunningServer) -> dict[str, str]:
    return {row["name"]: row.get("state", "") for row in server.index()}


def ready(server: RunningServer) -> set[str]:
    return {name for name, state in states(server).items() if state == "READY"}


def load(server: RunningServer, name: str) -> str:
    """ "" or the error."""
    answer = server.post(f"/v2/repository/models/{name}/load", {})
    return "" if answer.status == 200 else f"{answer.status} {answer.error}"


def held(server: RunningServer, name: str) -> int:
    (usage,) = server.statistics(name)["memory_usage"]
    assert (usage["type"], usage["id"]) == ("CPU", 0)
    return int(usage["byte_size"])


def sized(repository: Path, name: str, size: int, more: str = "") -> None:
    """A model that says that it takes ``size`` bytes; it takes next to none."""
    write_model(repository, name, identity(extra=parameter("memory.bytes", size) + more))


def bulky(repository: Path, name: str, size: int, more: str = "") -> None:
    """A model inside the server with weights of ``size`` bytes, which its files have."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(len(name)).random(size // 4).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["X", "w"], ["Y"])],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [len(weights)])],
        [numpy_helper.from_array(weights, "w")],
    )
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, folder / "model.onnx")
    group = "instance_group [ { kind: KIND_CPU count: 1 } ]"
    (folder.parent / "config.pbtxt").write_text(f'backend: "onnxruntime" {group} {more}')


# Measured


@pytest.mark.slow
def test_the_memory_of_a_process_is_measured_and_shown(tmp_path: Path) -> None:
    source = HOLDS.replace("SIZE", "50_000_000")
    write_python(tmp_path / "models", "heavy", 1, source)
    write_python(tmp_path / "models", "light", 1)
    with server_of(tmp_path) as server:
        heavy, light = held(server, "heavy"), held(server, "light")
        assert heavy - light == pytest.approx(50_000_000, rel=0.2)
        (child,) = [c for c in psutil.Process(server.process.pid).children() if c.memory_info().rss > heavy * 0.9]
        assert heavy <= child.memory_info().rss * 1.1
        assert f'naiad_model_memory_bytes{{device="CPU",model="heavy",version="1"}} {heavy}' in server.metrics_page()
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            (usage,) = client.get_inference_statistics("heavy").model_stats[0].memory_usage
            assert (usage.type, usage.byte_size) == ("CPU", heavy)


@pytest.mark.slow
def test_the_memory_of_a_model_inside_the_server_is_at_least_its_files(tmp_path: Path) -> None:
    bulky(tmp_path / "models", "bulky", 40 * MB)
    with server_of(tmp_path) as server:
        assert 40 * MB <= held(server, "bulky") < 200 * MB


# The budget


@pytest.mark.slow
def test_the_longest_unused_goes_for_a_load(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        bulky(tmp_path / "models", name, 20 * MB, parameter("memory.bytes", 60 * MB))
    with server_of(tmp_path, EXPLICIT, "--model-memory-budget", 130 * MB) as server:
        assert load(server, "a") == load(server, "b") == ""
        value = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [1.0]}], "outputs": []}
        assert server.infer("a", value).status == 200
        assert load(server, "c") == ""
        assert ready(server) == {"a", "c"}
        assert server.get("/v2/health/ready").status == 200
        assert "naiad_model_memory_budget_bytes 136314880" in server.metrics_page()


@pytest.mark.slow
def test_a_load_that_does_not_fit_is_refused_with_the_figures(tmp_path: Path) -> None:
    models = tmp_path / "models"
    bulky(models, "pinned", 40 * MB, parameter("memory.pinned", "true"))
    bulky(models, "other", 40 * MB)
    sized(models, "huge", 500 * MB)
    write_model(models, "wrong", identity(extra=parameter("memory.bytes", "9" * 5000)))
    with server_of(tmp_path, EXPLICIT, "--model-memory-budget", 300 * MB, "--load-model=pinned") as server:
        refused = load(server, "huge")
        assert refused.startswith("400 model 'huge' takes 524288000 bytes of memory (by its parameter 'memory.bytes')")
        assert "--model-memory-budget is 314572800" in refused
        assert 'is "9999' in (refused := load(server, "wrong"))
        assert "expected a number of bytes" in refused
        assert ready(server) == {"pinned"}
    with server_of(tmp_path, EXPLICIT, "--model-memory-budget", 70 * MB, "--load-model=pinned") as server:
        refused = load(server, "other")
        assert refused.startswith("503 there is no room for model 'other': it takes 4")
        assert "of them pinned" in refused
        assert ready(server) == {"pinned"}


@pytest.mark.slow
def test_a_model_that_takes_more_than_was_known_is_unloaded_again(tmp_path: Path) -> None:
    source = HOLDS.replace("SIZE", "200_000_000")
    write_python(tmp_path / "models", "heavy", 1, source)
    with server_of(tmp_path, EXPLICIT, "--model-memory-budget", 100 * MB) as server:
        assert "more than --model-memory-budget (104857600) leaves it: it was unloaded again" in load(server, "heavy")
        assert ready(server) == set()
        assert "takes 2" in load(server, "heavy"), "what it took is known now"
        wait_until(lambda: len(psutil.Process(server.process.pid).children()) == 0, 10, "its process is gone")


@pytest.mark.slow
def test_a_reload_needs_no_room_for_what_it_replaces(tmp_path: Path) -> None:
    bulky(tmp_path / "models", "only", 40 * MB)
    with server_of(tmp_path, EXPLICIT, "--model-memory-budget", 200 * MB, "--load-model=only") as server:
        file = tmp_path / "models" / "only" / "config.pbtxt"
        for number in range(3):
            file.write_text(file.read_text() + parameter(f"x{number}", 1))
            assert load(server, "only") == ""
        assert ready(server) == {"only"}


@pytest.mark.slow
def test_models_of_the_start_that_do_not_fit_wait_for_requests(tmp_path: Path) -> None:
    for name in ("a", "b"):
        bulky(tmp_path / "models", name, 40 * MB, parameter("memory.bytes", 60 * MB))
    value = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
    budget = ("--model-memory-budget", 100 * MB, "--model-load-thread-count", 1)
    with server_of(tmp_path, *budget, "--load-on-demand-secs=20") as server:
        assert len(ready(server)) == 1
        assert server.get("/v2/health/ready").status == 200
        for name in ("a", "b", "a", "b"):
            assert server.infer(name, value).status == 200
            assert ready(server) == {name}
        assert 'naiad_model_evictions{reason="memory"} ' in server.metrics_page()


# On demand


@pytest.mark.slow
def test_a_request_loads_its_model(tmp_path: Path) -> None:
    write_python(tmp_path / "models", "scales", 2)
    write_onnx(tmp_path / "models", "graph", 3)
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=20") as server:
        assert ready(server) == set()
        assert server.get("/v2/models/scales/ready").status == 400
        assert "an inference request loads it" in server.get("/v2/models/scales").error
        assert served(server, "scales/versions/1", PYTHON) == 1
        assert served(server, "scales", PYTHON) == 2
        assert ready(server) == {"scales"}
        given = tritonclient.grpc.InferInput("X", [1, 2], "FP32")
        given.set_data_from_numpy(np.ones((1, 2), np.float32))
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            assert client.infer("graph", [given]).as_numpy("Y").tolist() == [[3.0, 3.0]]
        assert server.infer("none", ONNX).status == 404
        assert server.post("/v2/models/graph/versions/9/infer", ONNX).status == 404


def test_routes_outlast_an_eviction_and_aliases_load_their_model(tmp_path: Path) -> None:
    said = parameter("memory.bytes", 60 * MB)
    write_onnx(tmp_path / "models", "scales", 3, said + parameter("route.alias.stable", 1))
    write_onnx(tmp_path / "models", "other", 1, said)
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=20", "--model-memory-budget", 100 * MB) as server:
        assert served(server, "scales/versions/stable", ONNX) == 1
        answer = server.post("/v2/models/scales/routes", {"split": {"1": 1, "2": 1}, "aliases": {"new": 3}})
        assert answer.status == 200
        for _ in range(2):
            assert served(server, "other", ONNX) == 1
            assert ready(server) == {"other"}
            assert served(server, "scales/versions/new", ONNX) == 3
            assert shares(server, "scales", ONNX, 4) == {1: 2, 2: 2}
        assert server.post("/v2/models/scales/versions/none/infer", ONNX).status == 404


@pytest.mark.slow
def test_generate_and_streams_load_their_models_too(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        write_python(tmp_path / "models", name, 1)
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=20") as server:
        answer = server.post("/v2/models/first/generate", {"X": [1.0, 1.0]})
        assert (answer.status, answer.json()["Y"]) == (200, [1.0, 1.0])
        found: SimpleQueue[Any] = SimpleQueue()
        given = tritonclient.grpc.InferInput("X", [1], "FP32")
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            client.start_stream(lambda result, error: found.put((result, error)))
            for number, name in enumerate(("second", "none", "third", "second", "first")):
                given.set_data_from_numpy(np.full(1, number, np.float32))
                client.async_stream_infer(name, [given], request_id=str(number))
            answers = [found.get(timeout=20) for _ in range(5)]
            client.stop_stream()
        assert [None if error else float(result.as_numpy("Y")[0]) for result, error in answers] == [0, None, 2, 3, 4]
        assert "'none' is not found" in str(answers[1][1])


@pytest.mark.slow
def test_a_stream_that_half_closes_while_its_model_loads_is_answered(tmp_path: Path) -> None:
    go = tmp_path / "go"
    write_python(tmp_path / "models", "late", 1, SLOW_START.replace("GO", json.dumps(str(go))))
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=20") as server:
        found: SimpleQueue[Any] = SimpleQueue()
        given = tritonclient.grpc.InferInput("X", [1], "FP32")
        given.set_data_from_numpy(np.ones(1, np.float32))
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            client.start_stream(lambda result, error: found.put((result, error)))
            for _ in range(10):
                client.async_stream_infer("late", [given])
            server.wait_for("loading: late:1")
            threading.Timer(0.2, go.touch).start()
            client.stop_stream()
        assert [found.get(timeout=10)[1] for _ in range(10)] == [None] * 10
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_a_storm_loads_a_model_once(tmp_path: Path) -> None:
    go = tmp_path / "go"
    write_python(tmp_path / "models", "late", 1, SLOW_START.replace("GO", json.dumps(str(go))))
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=20") as server, ThreadPoolExecutor(30) as pool:
        asking = [pool.submit(server.infer, "late", PYTHON) for _ in range(30)]
        wait_until(lambda: "naiad_model_demand_waiting 30" in server.metrics_page(), 10, "all wait")
        go.touch()
        assert [one.result().status for one in asking] == [200] * 30
        assert server.log.count("loading: late:1") == 1
        assert "naiad_model_demand_loads 1" in server.metrics_page()
        assert "naiad_model_demand_waiting 0" in server.metrics_page()


@pytest.mark.slow
def test_a_request_waits_no_longer_than_it_may_and_too_many_are_refused(tmp_path: Path) -> None:
    go = tmp_path / "go"
    write_python(tmp_path / "models", "late", 1, SLOW_START.replace("GO", json.dumps(str(go))))
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=2") as server:
        body = json.dumps(PYTHON).encode()
        peers: list[socket.socket] = []
        for _ in range(1030):
            peer = server.connect()
            peer.sendall(request_bytes("POST", "/v2/models/late/infer", body))
            peers.append(peer)
        answers = [read_response(peer) for peer in peers]
        for peer in peers:
            peer.close()
        assert {answer.status for answer in answers} == {503}
        assert all(answer.headers["retry-after"] == "1" for answer in answers)
        assert sum("requests with" in answer.error for answer in answers) >= 6
        assert sum("was not loaded within 2 s" in answer.error for answer in answers) >= 1000
        go.touch()
        assert served(server, "late", PYTHON) == 1


@pytest.mark.slow
def test_callers_that_leave_make_room_for_others(tmp_path: Path) -> None:
    go = tmp_path / "go"
    write_python(tmp_path / "models", "late", 1, SLOW_START.replace("GO", json.dumps(str(go))))
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=60") as server:
        body = json.dumps(PYTHON).encode()
        peers = [server.connect() for _ in range(5)]
        for peer in peers:
            peer.sendall(request_bytes("POST", "/v2/models/late/infer", body))
        wait_until(lambda: "naiad_model_demand_waiting 5" in server.metrics_page(), 10, "they wait")
        for peer in peers:
            peer.close()
        wait_until(lambda: "naiad_model_demand_waiting 0" in server.metrics_page(), 10, "they are gone")
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            given = tritonclient.grpc.InferInput("X", [1], "FP32")
            given.set_data_from_numpy(np.ones(1, np.float32))
            with pytest.raises(tritonclient.grpc.InferenceServerException, match="Deadline"):
                client.infer("late", [given], client_timeout=0.5)
        wait_until(lambda: "naiad_model_demand_waiting 0" in server.metrics_page(), 10, "it is gone")
        go.touch()
        assert served(server, "late", PYTHON) == 1


@pytest.mark.slow
def test_a_load_that_fails_is_not_tried_for_every_request(tmp_path: Path) -> None:
    write_python(tmp_path / "models", "broken", 1, SCALES.replace("self.factor = ", "self.factor = 1 / 0 * "))
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=20") as server:
        for _ in range(5):
            answer = server.infer("broken", PYTHON)
            assert (answer.status, "division by zero" in answer.error) == (503, True)
        assert server.log.count("loading: broken:1") == 1
        found: SimpleQueue[Any] = SimpleQueue()
        given = tritonclient.grpc.InferInput("X", [1], "FP32")
        given.set_data_from_numpy(np.ones(1, np.float32))
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            client.start_stream(lambda result, error: found.put((result, error)))
            for _ in range(3):
                client.async_stream_infer("broken", [given])
            assert all("division by zero" in str(found.get(timeout=10)[1]) for _ in range(3))
            client.stop_stream()
        (tmp_path / "models" / "broken" / "1" / "model.py").write_text(
            (tmp_path / "models" / "broken" / "1" / "model.py").read_text().replace("1 / 0 * ", "")
        )
        assert load(server, "broken") == ""
        assert served(server, "broken", PYTHON) == 1


@pytest.mark.slow
def test_a_model_that_somebody_unloaded_stays_away(tmp_path: Path) -> None:
    write_onnx(tmp_path / "models", "scales", 1)
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=20") as server:
        assert served(server, "scales", ONNX) == 1
        assert server.post("/v2/repository/models/scales/unload", {}).status == 200
        assert server.infer("scales", ONNX).status == 404
        assert load(server, "scales") == ""
        assert served(server, "scales", ONNX) == 1


# Idle


@pytest.mark.slow
def test_an_idle_model_goes_and_comes_back(tmp_path: Path) -> None:
    write_python(tmp_path / "models", "scales", 1)
    write_onnx(tmp_path / "models", "kept", 1, parameter("memory.pinned", "true"))
    with server_of(tmp_path, "--load-on-demand-secs=20", "--model-idle-unload-secs=1") as server:
        for _ in range(2):
            assert served(server, "scales", PYTHON) == 1
            wait_until(lambda: ready(server) == {"kept"}, 15, "the idle model goes")
            wait_until(lambda: not psutil.Process(server.process.pid).children(), 15, "and its process")
            assert server.get("/v2/health/ready").status == 200
        assert 'naiad_model_evictions{reason="idle"} 2' in server.metrics_page()


@pytest.mark.slow
def test_a_model_that_runs_is_not_idle(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "slow", identity(delay_ms=3000))
    with server_of(tmp_path, "--load-on-demand-secs=20", "--model-idle-unload-secs=1") as server:
        assert server.infer("slow", numbers([1])).status == 200
        assert "unloading 'slow'" not in server.log
        server.wait_for("unloading 'slow'")


# Requests and evictions at the same moment


@pytest.mark.slow
def test_what_runs_is_answered_before_its_model_goes_and_what_comes_meanwhile_waits(tmp_path: Path) -> None:
    for name in ("slow", "other"):
        write_model(tmp_path / "models", name, identity(delay_ms=700, extra=parameter("memory.bytes", 60 * MB)))
        (tmp_path / "models" / name / "1" / "weights").write_bytes(bytes(40 * MB))
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=30", "--model-memory-budget", 70 * MB) as server:
        assert load(server, "slow") == ""
        with ThreadPoolExecutor(4) as pool:
            running = pool.submit(server.infer, "slow", numbers([1]))
            wait_until(lambda: "naiad_requests_in_flight 1\n" in server.metrics_page(), 10, "it runs")
            other = pool.submit(server.infer, "other", numbers([2]))
            server.wait_for("unloading 'slow'")
            late = pool.submit(server.infer, "slow", numbers([3]))
            answers = [one.result() for one in (running, other, late)]
        assert [answer.status for answer in answers] == [200, 200, 200], [answer.body for answer in answers]
        assert [answer.json()["outputs"][0]["data"] for answer in answers] == [[1], [2], [3]]
        log = server.log
        assert log.index("unloading 'slow'") < log.index("successfully unloaded 'slow'") < log.index("loading: other")


# Scenario 11: two clients, a budget for one model: no lack of memory, no race, both answered.


@pytest.mark.slow
def test_two_clients_and_a_budget_for_one_model(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_python(tmp_path / "models", name, 1, more=parameter("memory.bytes", 60 * MB))
    with server_of(tmp_path, EXPLICIT, "--load-on-demand-secs=60", "--model-memory-budget", 70 * MB) as server:
        over: list[int] = []

        def ask(name: str) -> list[int]:
            return [server.infer(name, PYTHON).status for _ in range(6)]

        with ThreadPoolExecutor(2) as pool:
            asking = [pool.submit(ask, name) for name in ("a", "b")]
            while not all(one.done() for one in asking):
                over.append(len(psutil.Process(server.process.pid).children()))
            assert [one.result() for one in asking] == [[200] * 6] * 2
        # The interpreter of the next one starts only when the process of the one before has ended.
        assert max(over) <= 2


# Instances that come and go, and processes that models share


@pytest.mark.slow
def test_more_instances_need_room_and_are_measured_at_once(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_python(models, "grows", 1, HOLDS.replace("SIZE", "60_000_000"))
    sized(models, "other", 100 * MB)
    with server_of(tmp_path, EXPLICIT, "--model-memory-budget", 300 * MB, "--load-model=*") as server:
        file = models / "grows" / "config.pbtxt"
        config, one = file.read_text(), held(server, "grows")
        file.write_text(config.replace("count: 1", "count: 3"))
        assert load(server, "grows") == ""
        assert held(server, "grows") > 2.5 * one
        assert ready(server) == {"grows"}, "the other one made room"
        file.write_text(config.replace("count: 1", "count: 9"))
        refused = load(server, "grows")
        assert refused.startswith("400 model 'grows' takes ")
        assert "with its new instances, and --model-memory-budget is" in refused
        assert ready(server) == {"grows"}, "it goes on with those that it has"
        assert server.infer("grows", PYTHON).status == 200


@pytest.mark.slow
def test_models_in_one_process_hold_a_part_of_it_each(tmp_path: Path) -> None:
    shared = 'parameters { key: "execution" value { string_value: "shared" } }'
    for name in ("one", "two"):
        write_onnx(tmp_path / "models", name, 1, shared)
    with server_of(tmp_path, EXPLICIT, "--load-model=one") as server:
        alone = held(server, "one")
        assert load(server, "two") == ""
        assert held(server, "one") == held(server, "two") < 0.75 * alone


@pytest.mark.slow
def test_the_index_says_why_a_model_was_unloaded(tmp_path: Path) -> None:
    for name in ("a", "b"):
        sized(tmp_path / "models", name, 60 * MB)
    with server_of(tmp_path, EXPLICIT, "--model-memory-budget", 100 * MB, "--load-model=a") as server:
        assert load(server, "b") == ""
        rows = {row["name"]: row.get("reason", "") for row in server.index()}
        assert rows == {"a": "unloaded: to make room for 'b'", "b": ""}
        assert server.get("/v2/health/ready").status == 200, "it was unloaded on purpose"
