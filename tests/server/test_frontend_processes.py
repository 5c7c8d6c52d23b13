"""A server whose ports are served by several processes: what callers see, and what happens when one is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import RESPONSE_S, RunningServer, read_response, request_bytes, run_to_end, serving, wait_until
from support.api_keys import hashed
from support.front_processes import (
    FRONTS,
    LIBRARIES,
    ask,
    client_of,
    front_of,
    front_requests,
    input_of,
    one_connection_each,
    processes,
    served,
)
from support.replaced_files import put
from support.served_models import SUM_AND_DIFFERENCE, identity, numbers, tensor, write_model
from support.shared_regions import PROTOCOLS, memory

SEGMENT = 1 << 16


def write_models(folder: Path) -> Path:
    write_model(folder, "same", identity())
    write_model(folder, "strings", identity("TYPE_STRING"))
    write_model(folder, "slow", identity(delay_ms=1000))
    write_model(folder, "sum", "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    batched = "max_batch_size: 64 dynamic_batching { max_queue_delay_microseconds: 2000 }"
    write_model(folder, "batched", batched, graph=SUM_AND_DIFFERENCE)
    start, ready = (
        f'{{ name: "{kind}" control [ {{ kind: CONTROL_SEQUENCE_{kind} int32_false_true: [ 0, 1 ] }} ] }}'
        for kind in ("START", "READY")
    )
    one = (tensor("INPUT", "TYPE_INT32", "1"), tensor("OUTPUT", "TYPE_INT32", "1"))
    adds = f'backend: "sequence" max_batch_size: 8 input [ {one[0]} ] output [ {one[1]} ]'
    write_model(folder, "adds", f"{adds} sequence_batching {{ direct {{ }} control_input [ {start}, {ready} ] }}")
    repeats = 'model_transaction_policy { decoupled: true } backend: "repeat"'
    inputs = [("IN", "TYPE_INT32", "-1"), ("DELAY", "TYPE_UINT32", "-1"), ("WAIT", "TYPE_UINT32", "1")]
    outputs = [("OUT", "TYPE_INT32", "1"), ("IDX", "TYPE_UINT32", "1")]
    given, made = (", ".join(tensor(*one) for one in some) for some in (inputs, outputs))
    write_model(folder, "repeat", f"{repeats} input [ {given} ] output [ {made} ]")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("fronts") / "models")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def server(models: Path, traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    options = ("--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true")
    tracing = ("--trace-config", f"triton,file={traces / 'trace.json'}")
    with served(models, tmp_path_factory.mktemp("log") / "log", *options, *tracing) as running:
        yield running


# What callers see


def test_two_processes_answer_on_each_port(server: RunningServer) -> None:
    assert len(processes(server)["front"]) == 2
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: server.infer("same", numbers([n])).json()["outputs"][0]["data"], range(32)))
    assert answers == [[n] for n in range(32)]


@pytest.mark.parametrize("size", [16, SEGMENT])
@pytest.mark.parametrize("protocol", LIBRARIES)
def test_numbers_of_any_size_come_back(server: RunningServer, protocol: str, size: int) -> None:
    given = np.arange(size, dtype=np.int32)
    with client_of(server, protocol) as client:
        for _ in range(3):
            found = client.infer("same", [input_of(LIBRARIES[protocol], "INPUT0", given)])
            assert np.array_equal(found.as_numpy("OUTPUT0"), given)


@pytest.mark.parametrize("count", [3, 5000])
@pytest.mark.parametrize("protocol", LIBRARIES)
def test_strings_come_back(server: RunningServer, protocol: str, count: int) -> None:
    given = np.array([b"%d" % n for n in range(count)], np.object_)
    with client_of(server, protocol) as client:
        found = client.infer("strings", [input_of(LIBRARIES[protocol], "INPUT0", given)])
    assert np.array_equal(found.as_numpy("OUTPUT0"), given)


@pytest.mark.parametrize("protocol", LIBRARIES)
def test_the_front_ends_read_ordinary_requests_themselves(server: RunningServer, protocol: str) -> None:
    given = [input_of(LIBRARIES[protocol], name, np.ones((1, 16), np.int32)) for name in ("INPUT0", "INPUT1")]
    before = front_requests(server).get("read", 0)
    with client_of(server, protocol) as client:
        for _ in range(5):
            assert client.infer("batched", given, request_id="a").as_numpy("OUTPUT0").flat[0] == 2
    wait_until(lambda: front_requests(server).get("read", 0) >= before + 5, 10, "the requests are counted")


def test_callers_learn_where_the_time_went(server: RunningServer) -> None:
    """The engine knows, so it gets the requests that ask for it."""
    timed = server.request(
        "POST", "/v2/models/slow/infer", json.dumps(numbers([1])).encode(), [("want-server-timing", "1")]
    )
    assert (timed.status, timed.headers["server-timing"].count("dur=")) == (200, 7)
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="slow")
        request.inputs.add(name="INPUT0", datatype="INT32", shape=[1]).contents.int_contents.append(1)
        call = stub.ModelInfer.future(request, metadata=[("want-server-timing", "1")], timeout=RESPONSE_S)
        assert call.result().outputs[0].name == "OUTPUT0"
        assert dict(call.trailing_metadata())["server-timing"].count("dur=") == 7


def test_a_call_that_the_engine_refuses_names_its_request(server: RunningServer) -> None:
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = stub.ModelInfer.future(service_pb2.ModelInferRequest(model_name="unknown", id="a7"), timeout=RESPONSE_S)
        assert call.code() == grpc.StatusCode.NOT_FOUND
        assert dict(call.trailing_metadata())["inference-request-id"] == "a7"


def test_errors_have_the_texts_of_one_process(server: RunningServer) -> None:
    unknown = server.infer("unknown", numbers([1]))
    assert (unknown.status, unknown.json()) == (404, {"error": "Request for unknown model: 'unknown' is not found"})
    wrong = server.infer("same", {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [1]}]})
    expected = {"error": "unexpected inference input 'X' for model 'same'"}
    assert (wrong.status, wrong.json()) == (400, expected)
    assert server.get("/nothing").status == 404
    given = {"name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [1]}
    refused = server.infer("adds", {"inputs": [given], "parameters": {"sequence_id": 77}})
    # The reference sends the errors of a submission as JSON, and those of a run as text.
    assert (refused.status, refused.headers["content-type"]) == (400, "application/json")
    assert "must specify the START flag" in refused.json()["error"]


def test_statistics_are_those_of_the_whole_server(server: RunningServer) -> None:
    before = server.statistics("same")["inference_count"]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: server.infer("same", numbers([n])), range(20)))
    assert server.statistics("same")["inference_count"] == before + 20


@pytest.mark.parametrize("protocol", LIBRARIES)
def test_requests_of_all_processes_run_in_one_batch(server: RunningServer, protocol: str) -> None:
    library, callers, each = LIBRARIES[protocol], 16, 10
    before = server.statistics("batched")

    def call(first: int) -> None:
        with client_of(server, protocol) as client:
            for n in range(first, first + each):
                values = [np.full((1, 16), value, np.int32) for value in (n, 1)]
                given = [
                    input_of(library, name, array) for name, array in zip(("INPUT0", "INPUT1"), values, strict=True)
                ]
                found = client.infer("batched", given, request_id=str(n))
                assert (found.as_numpy("OUTPUT0") == n + 1).all()
                assert (found.as_numpy("OUTPUT1") == n - 1).all()

    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(call, range(0, callers * each, each)))
    after = server.statistics("batched")
    grown = {key: after[key] - before[key] for key in ("inference_count", "execution_count")}
    assert grown["inference_count"] == callers * each
    assert (
        after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"] == callers * each
    )
    assert 0 < grown["execution_count"] < callers * each


def test_a_sequence_continues_whatever_process_its_requests_come_to(server: RunningServer) -> None:
    sums = []
    with one_connection_each(server) as connections:
        for step in range(8):
            given = {"name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [step]}
            place = {"sequence_id": 7, "sequence_start": step == 0, "sequence_end": step == 7}
            answer = ask(connections[step % 2], "/v2/models/adds/infer", {"inputs": [given], "parameters": place})
            sums.append(answer.json()["outputs"][0]["data"])
    assert sums == [[0], [1], [3], [6], [10], [15], [21], [28]]


def test_requests_of_every_process_are_traced(server: RunningServer, traces: Path) -> None:
    settings = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "log_frequency": "1"}
    assert server.post("/v2/models/same/trace/setting", settings).status == 200
    with one_connection_each(server) as connections:

        def are_traced() -> bool:
            # A front end that has not heard of the change may still read a request itself, which is not traced.
            for number, connection in enumerate(connections):
                named = {**numbers([1]), "id": f"traced-{number}"}
                assert ask(connection, "/v2/models/same/infer", named).status == 200
            text = "".join(file.read_text() for file in traces.iterdir())
            return all(f'"traced-{number}"' in text for number in range(2))

        wait_until(are_traced, 10, "a request of each process is traced")
    assert server.post("/v2/models/same/trace/setting", {"trace_level": ["OFF"]}).status == 200


def test_the_metrics_count_the_requests_of_every_process(server: RunningServer) -> None:
    def count() -> int:
        line = 'nv_inference_request_success{model="sum",version="1"}'
        return next(int(float(x.split()[-1])) for x in server.metrics_page().splitlines() if x.startswith(line))

    given = {"inputs": [{"name": f"INPUT{n}", "datatype": "INT32", "shape": [1, 16], "data": [1] * 16} for n in (0, 1)]}
    before = count()
    with one_connection_each(server) as connections:
        for connection in connections:
            assert ask(connection, "/v2/models/sum/infer", given).status == 200
    assert count() == before + 2


def test_a_load_and_an_unload_reach_every_process(server: RunningServer) -> None:
    def answers(status: int) -> bool:
        return all(server.infer("strings", text).status == status for _ in range(6))

    text = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": ["a"]}]}
    assert answers(200)
    assert server.post("/v2/repository/models/strings/unload", {}).status == 200
    assert not any(server.infer("strings", text).status == 200 for _ in range(6))
    assert server.post("/v2/repository/models/strings/load", {}).status == 200
    assert answers(200)


def test_a_model_that_is_replaced_refuses_no_request(server: RunningServer) -> None:
    """Requests that were on their way when their model was exchanged go to the new one."""
    config = json.dumps({"backend": "identity", "parameters": {"execute_delay_ms": {"string_value": "1"}}})
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(server.infer, "same", numbers([n])) for n in range(60)]
        for _ in range(3):
            body = {"parameters": {"config": json.dumps({**_tensors(), **json.loads(config)})}}
            assert server.post("/v2/repository/models/same/load", body).status == 200
            assert server.post("/v2/repository/models/same/load", {}).status == 200
        assert {one.result(60).status for one in asked} == {200}


def _tensors() -> dict[str, Any]:
    return {
        "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_regions_of_clients_are_known_to_every_process(server: RunningServer, protocol: str) -> None:
    given = np.arange(16, dtype=np.int32)
    library = PROTOCOLS[protocol]
    with memory(128) as region:
        region.put(given)
        with client_of(server, protocol) as client:
            client.register_system_shared_memory("r", region.key, 128)
        try:
            for _ in range(4):
                # A client of its own, which may come to another process.
                with client_of(server, protocol) as client:
                    named = library.InferInput("INPUT0", [16], "INT32")
                    named.set_shared_memory("r", 64)
                    assert np.array_equal(client.infer("same", [named]).as_numpy("OUTPUT0"), given)
        finally:
            with client_of(server, protocol) as client:
                client.unregister_system_shared_memory("r")


def test_a_stream_of_events_comes_piece_by_piece(server: RunningServer) -> None:
    body = {"IN": [4, 2, 0, 1], "DELAY": [1, 2, 3, 4], "WAIT": 0}
    found = server.post("/v2/models/repeat/generate_stream", body)
    events = [json.loads(line[6:]) for line in found.body.decode().splitlines() if line.startswith("data: ")]
    assert found.status == 200
    assert [event["OUT"] for event in events] == [4, 2, 0, 1]


def test_a_stream_of_calls_gets_all_responses(server: RunningServer) -> None:
    given = [
        input_of(tritonclient.grpc, "IN", np.arange(50, dtype=np.int32)),
        input_of(tritonclient.grpc, "DELAY", np.zeros(50, np.uint32)),
        input_of(tritonclient.grpc, "WAIT", np.zeros(1, np.uint32)),
    ]
    found: list[int] = []
    with client_of(server, "grpc") as client:
        client.start_stream(lambda result, error: found.append(-1 if error else int(result.as_numpy("OUT")[0])))
        client.async_stream_infer("repeat", given)
        wait_until(lambda: len(found) >= 50, 20, "all responses have come")
        client.stop_stream()
    assert found == list(range(50))


def test_log_and_trace_settings_are_those_of_the_whole_server(server: RunningServer) -> None:
    assert server.post("/v2/logging", {"log_verbose_level": 1}).status == 200
    line = "HTTP request: POST /v2/models/same/infer"

    def is_logged() -> bool:
        # A front end that has not heard of the change may still read a request itself, which logs nothing.
        assert server.infer("same", numbers([1])).status == 200
        return line in server.log

    wait_until(is_logged, 10, "requests are logged")
    assert server.post("/v2/logging", {"log_verbose_level": 0}).status == 200
    assert {server.get("/v2/trace/setting").status for _ in range(4)} == {200}


def test_a_caller_that_leaves_has_its_request_cancelled(server: RunningServer) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.infer, "slow", numbers([1]))
        server.wait_in_flight(1)
        with server.connect() as connection:
            connection.sendall(request_bytes("POST", "/v2/models/slow/infer", json.dumps(numbers([2])).encode()))
            server.wait_pending("slow", 1)
        server.wait_pending("slow", 0)
        assert running.result(RESPONSE_S).status == 200


def test_large_tensors_leave_nothing_behind(server: RunningServer) -> None:
    given = np.zeros(1 << 18, np.int32)
    with client_of(server, "http") as client:
        client.infer("same", [input_of(tritonclient.http, "INPUT0", given)])
        everything = [p for found in processes(server).values() for p in found]
        before = [p.num_fds() for p in everything]
        for _ in range(20):
            client.infer("same", [input_of(tritonclient.http, "INPUT0", given)])
        assert [p.num_fds() for p in everything] == before
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("naiad")]


# Limits


@pytest.mark.slow
def test_the_limit_on_requests_in_flight_is_that_of_the_whole_server(models: Path, tmp_path: Path) -> None:
    with served(models, tmp_path / "log", "--max-in-flight-requests", 2) as server, ThreadPoolExecutor(8) as pool:
        found = sorted(r.status for r in pool.map(lambda n: server.infer("slow", numbers([n])), range(8)))
        assert found.count(200) >= 2
        assert set(found) == {200, 503}
        line = f'naiad_requests_refused{{bound="requests"}} {found.count(503)}'
        # Front ends report what they refuse a few times a second.
        wait_until(lambda: line in server.metrics_page(), 10, "the refusals of all processes are counted")


@pytest.mark.slow
def test_the_limit_of_a_key_counts_the_requests_of_all_processes(models: Path, tmp_path: Path) -> None:
    key = f"few infer {hashed('secret')} rate=0.001 burst=3"
    with served(models, tmp_path / "log", "--api-key", key) as server:
        body, headers = json.dumps(numbers([1])).encode(), [("Authorization", "Bearer secret")]
        found = [server.request("POST", "/v2/models/same/infer", body, headers).status for _ in range(8)]
        assert found == [200, 200, 200, 429, 429, 429, 429, 429]
        assert server.infer("same", numbers([1])).status == 401


@pytest.mark.slow
def test_a_signal_has_every_process_read_the_keys_again(models: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    put(keys, f"old infer {hashed('old')}\n")
    with served(models, tmp_path / "log", "--api-key-file", keys) as server, one_connection_each(server) as connections:

        def statuses(key: str) -> list[int]:
            body, headers = json.dumps(numbers([1])).encode(), [("Authorization", f"Bearer {key}")]
            found = []
            for connection in connections:
                connection.sendall(request_bytes("POST", "/v2/models/same/infer", body, headers))
                found.append(read_response(connection, "POST").status)
            return found

        assert (statuses("old"), statuses("new")) == ([200, 200], [401, 401])
        put(keys, f"new infer {hashed('new')}\n")
        server.signal(signal.SIGHUP)
        wait_until(lambda: statuses("new") == [200, 200], 10, "all processes have read the keys")
        wait_until(lambda: statuses("old") == [401, 401], 10, "no process takes the old key")


# Processes


@pytest.mark.slow
def test_a_killed_front_end_loses_its_own_connections_alone(models: Path, tmp_path: Path) -> None:
    with served(models, tmp_path / "log") as server:
        wait_until(lambda: processes(server)["spare"], 30, "a process is ready")
        connections = [server.connect() for _ in range(12)]
        of = {
            c: front_of(server, c.getsockname()[1]).pid
            for c in connections
            if ask(c, "/v2/models/same/infer", numbers([1]))
        }
        killed = next(iter(of.values()))
        os.kill(killed, signal.SIGKILL)
        for connection, pid in of.items():
            if pid != killed:
                assert ask(connection, "/v2/models/same/infer", numbers([2])).status == 200
            connection.close()
        wait_until(lambda: len(processes(server)["front"]) == 2, 20, "the front end is back")
        assert killed not in {p.pid for p in processes(server)["front"]}
        assert {server.infer("same", numbers([n])).status for n in range(12)} == {200}
        assert "was killed by signal 9" in server.log


@pytest.mark.slow
def test_without_its_engine_every_process_says_so_until_it_is_back(models: Path, tmp_path: Path) -> None:
    with served(models, tmp_path / "log") as server, client_of(server, "grpc") as client:
        slow = ThreadPoolExecutor(1).submit(server.infer, "slow", numbers([1]))
        server.wait_in_flight(1)
        wait_until(lambda: processes(server)["spare"], 30, "a process is ready")
        (engine,) = processes(server)["engine"]
        engine.kill()
        assert slow.result(RESPONSE_S).status in (503, 200)
        seen: list[tuple[int, str]] = []
        calls: list[str | None] = []
        given = [input_of(tritonclient.grpc, "INPUT0", np.ones(4, np.int32))]

        def serves() -> bool:
            found = server.infer("same", numbers([1]))
            seen.append((found.status, found.body.decode()))
            try:
                client.infer("same", given)
            except InferenceServerException as error:
                calls.append(error.status())
            return found.status == 200

        wait_until(serves, 30, "the models are served again")
        # Until then callers are told to come again, and never that there is no such model.
        assert {status for status, _ in seen} <= {200, 503}
        assert all("is being started again" in text for status, text in seen if status == 503)
        assert set(calls) == {"StatusCode.UNAVAILABLE"}
        assert client.infer("same", given).as_numpy("OUTPUT0").tolist() == [1, 1, 1, 1]
        assert len(processes(server)["front"]) == 2


@pytest.mark.slow
def test_a_stop_answers_what_is_in_flight_and_leaves_no_process(models: Path, tmp_path: Path) -> None:
    with served(models, tmp_path / "log") as server, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(server.infer, "slow", numbers([n])) for n in range(3)]
        server.wait_pending("slow", 2)
        everything = psutil.Process(server.process.pid).children(recursive=True)
        assert server.stop() == 0
        assert [one.result(RESPONSE_S).json()["outputs"][0]["data"] for one in asked] == [[0], [1], [2]]
        assert not [p for p in everything if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_no_process_outlives_a_killed_supervisor(models: Path, tmp_path: Path) -> None:
    with served(models, tmp_path / "log") as server:
        everything = psutil.Process(server.process.pid).children(recursive=True)
        server.kill()
        _, alive = psutil.wait_procs(everything, 40)
        assert not alive


def test_a_taken_port_is_reported(server: RunningServer, models: Path, tmp_path: Path) -> None:
    addresses = ("--http-address", "127.0.0.1", "--allow-grpc=false", "--allow-metrics=false")
    code, log = run_to_end(tmp_path / "log", models, *FRONTS, *addresses, "--http-port", server.http, ports=False)
    assert code == 1
    assert "already in use" in log


@pytest.mark.slow
def test_a_front_end_that_cannot_listen_ends_the_server(models: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    tls = ("--grpc-use-ssl=true", "--grpc-server-cert", wrong, "--grpc-server-key", wrong)
    code, log = run_to_end(tmp_path / "log", models, *FRONTS, *tls)
    assert code == 1
    assert "error: creating server" in log


def test_one_process_is_the_default(models: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "log", models) as server:
        assert server.infer("same", numbers([1])).status == 200
        assert psutil.Process(server.process.pid).children() == []
