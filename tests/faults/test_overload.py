"""More requests than a server takes: those beyond are refused at once, the others are served, and nothing is left."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from naiad.execution.worker.bls import MAX_CALLS
from naiad.testing import RESPONSE_S, RunningServer, read_response, request_bytes, serving, wait_until
from support.grpc_peers import calling
from support.overload_server import figures, held, inference, refused, wait_empty, wait_held, wait_taken, waiting
from support.python_models import DOUBLES, write_python_model
from support.served_models import identity, numbers, write_model

ROOM = 4
MEGABYTE = 1 << 20
TEXT = "unanswered requests, as many as --max-in-flight-requests"
OPTIONS = ("--max-in-flight-requests", ROOM, "--max-in-flight-bytes", 4 * MEGABYTE, "--exit-timeout-secs=0")
CALLS_SLOW = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            called = pb_utils.InferenceRequest(model_name="doubles", requested_output_names=["Y"],
                inputs=[pb_utils.Tensor("X", x)]).exec()
            if called.has_error():
                answers.append(pb_utils.InferenceResponse(error=called.error()))
            else:
                answers.append(pb_utils.InferenceResponse(called.output_tensors()))
        return answers
"""
CALLS_MANY = """
import asyncio

class TritonPythonModel:
    async def execute(self, requests):
        count = int(pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy().flat[0])
        x = pb_utils.Tensor("INPUT0", np.zeros((1, 1), np.int32))
        calls = [
            pb_utils.InferenceRequest(model_name="many", requested_output_names=["OUTPUT0"], inputs=[x]).async_exec()
            for _ in range(count)
        ]
        errors = [a.error().message() for a in await asyncio.gather(*calls) if a.has_error()]
        assert all("calls of other models open" in e for e in errors), errors[:3]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([[len(errors)]], np.float32))])]
"""
WAITS = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            time.sleep(float(pb_utils.get_input_tensor_by_name(request, "X").as_numpy().flat[0]))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros((1, 1), np.float32))]) for _ in requests]
"""


def write_models(repository: Path) -> Path:
    # Long enough for some requests beside a server that is full, also where the machine has other work.
    write_model(repository, "slow", identity(delay_ms=1000))
    write_model(repository, "stuck", identity(delay_ms=60_000))
    write_model(repository, "other", identity(delay_ms=1))
    write_model(repository, "bytes", identity("TYPE_UINT8", delay_ms=800))
    write_model(repository, "texts", identity("TYPE_STRING", delay_ms=800))
    return repository


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("overload")
    with serving(folder / "log", write_models(folder / "models"), *OPTIONS) as running:
        yield running
        assert "Traceback" not in running.log
        running.kill()


@pytest.mark.slow
def test_those_beyond_are_refused_and_told_when_to_come_again(server: RunningServer) -> None:
    before = refused(server, "requests")
    with waiting(server, "slow", ROOM) as peers:
        wait_held(server, ROOM)
        answer = server.infer("slow", numbers([1]))
        assert (answer.status, answer.headers["retry-after"], answer.type) == (503, "1", "application/json")
        assert f"the server has {ROOM} {TEXT}" in answer.error
        assert "try again later" in answer.error
        assert refused(server, "requests") == before + 1
        for peer in peers:
            assert read_response(peer).status == 200
    wait_empty(server)
    assert server.infer("slow", numbers([1])).status == 200


def test_everything_else_is_answered_meanwhile(server: RunningServer) -> None:
    name = 'nv_inference_request_failure{model="slow",reason="REJECTED",version="1"}'
    before = figures(server)[name]
    with waiting(server, "slow", ROOM):
        wait_held(server, ROOM)
        paths = ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/slow", "/v2/models/slow/ready")
        for path in (*paths, "/v2/models/slow/config", "/v2/models/stats", "/v2/logging"):
            assert server.get(path).status == 200, path
        assert server.post("/v2/repository/index", {}).status == 200
        # A large body, of a request that the server does not serve without --model-control-mode.
        answer = server.post("/v2/repository/models/x/load", {"parameters": {"file:1/a": "A" * 100_000}})
        assert "--model-control-mode" in answer.error
        assert figures(server)[name] == before
        with calling(server.grpc_url) as client:
            assert client.is_server_ready()
            assert client.get_model_metadata("slow").name == "slow"
    wait_empty(server)


@pytest.mark.slow
def test_a_refused_request_counts_as_rejected(server: RunningServer) -> None:
    name = 'nv_inference_request_failure{model="slow",reason="REJECTED",version="1"}'
    before, failed = figures(server)[name], server.statistics("slow")["inference_stats"]["fail"]["count"]
    with waiting(server, "slow", ROOM):
        wait_held(server, ROOM)
        for _ in range(5):
            assert server.infer("slow", numbers([1])).status == 503
    assert figures(server)[name] == before + 5
    assert server.statistics("slow")["inference_stats"]["fail"]["count"] >= failed + 5
    wait_empty(server)


@pytest.mark.slow
def test_many_requests_on_one_connection(server: RunningServer) -> None:
    with server.connect() as peer:
        peer.sendall(inference("slow") * 12)
        statuses = [read_pipelined(peer) for _ in range(12)]
    assert statuses[:ROOM] == [200] * ROOM
    assert statuses[ROOM:] == [503] * (12 - ROOM)
    wait_empty(server)


def read_pipelined(peer: socket.socket) -> int:
    """The status of the next answer, read byte by byte so that nothing of the one behind it is lost."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.recv(1)
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while length:
        length -= len(peer.recv(length))
    return int(head.split()[1])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["generate", "generate_stream"])
def test_generate_is_refused_likewise(server: RunningServer, way: str) -> None:
    with waiting(server, "slow", ROOM):
        wait_held(server, ROOM)
        answer = server.post(f"/v2/models/slow/{way}", {"INPUT0": 1})
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert TEXT in answer.error
    wait_empty(server)


def int32(values: list[int]) -> triton.InferInput:
    given = triton.InferInput("INPUT0", [len(values)], "INT32")
    given.set_data_from_numpy(np.array(values, np.int32))
    return given


@pytest.mark.slow
def test_calls_of_grpc_are_unavailable(server: RunningServer) -> None:
    with waiting(server, "slow", ROOM), calling(server.grpc_url) as client:
        wait_held(server, ROOM)
        for _ in range(3):  # the first is read in full, the others are like it
            with pytest.raises(InferenceServerException) as caught:
                client.infer("slow", [int32([1])], client_timeout=RESPONSE_S)
            assert caught.value.status() == "StatusCode.UNAVAILABLE"
            assert TEXT in caught.value.message()
    wait_empty(server)
    with calling(server.grpc_url) as client:
        assert client.infer("slow", [int32([5])]).as_numpy("OUTPUT0").tolist() == [5]


@pytest.mark.slow
def test_a_stream_goes_on_after_requests_that_were_refused(server: RunningServer) -> None:
    answers: list[Any] = []
    more = threading.Event()

    def take(result: Any, error: Any) -> None:
        answers.append(error or result)
        more.set()

    with waiting(server, "slow", ROOM), calling(server.grpc_url) as client:
        wait_held(server, ROOM)
        client.start_stream(take)
        for _ in range(3):
            client.async_stream_infer("slow", [int32([1])])
        wait_until(lambda: len(answers) == 3, RESPONSE_S, "three answers")
        assert all(TEXT in str(a) for a in answers)
        wait_empty(server)
        client.async_stream_infer("slow", [int32([7])])
        wait_until(lambda: len(answers) == 4, RESPONSE_S, "the last answer")
        assert answers[3].as_numpy("OUTPUT0").tolist() == [7]
        client.stop_stream()
    wait_empty(server)


@pytest.mark.slow
def test_callers_that_leave_make_room(server: RunningServer) -> None:
    with waiting(server, "slow", ROOM):
        wait_held(server, ROOM)
    # Those that waited are gone at once, the one that ran when it is done.
    wait_empty(server)
    with calling(server.grpc_url) as client, pytest.raises(InferenceServerException, match="Deadline"):
        client.infer("slow", [int32([1])], client_timeout=0.05)
    wait_empty(server)


# Bytes


def raw(model: str, size: int, *headers: tuple[str, str]) -> bytes:
    part = {"name": "INPUT0", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [part]}).encode()
    told = ("Inference-Header-Content-Length", str(len(head)))
    return request_bytes("POST", f"/v2/models/{model}/infer", head + bytes(size), [told, *headers])


@pytest.mark.slow
def test_a_body_without_room_is_refused_before_it_is_sent(server: RunningServer) -> None:
    before = refused(server, "bytes")
    with server.connect() as first, server.connect() as second, server.connect() as third:
        first.sendall(raw("bytes", 3 * MEGABYTE))
        wait_held(server, 1)
        whole = raw("bytes", 3 * MEGABYTE)
        second.sendall(whole[: whole.index(b"\r\n\r\n") + 4 + 100])
        answer = read_response(second)
        assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (503, "1", "close")
        assert "--max-in-flight-bytes" in answer.error
        expecting = raw("bytes", 3 * MEGABYTE, ("Expect", "100-continue"))
        third.sendall(expecting[: expecting.index(b"\r\n\r\n") + 4])
        assert read_response(third).status == 503
        assert refused(server, "bytes") == before + 2
        assert read_response(first).status == 200
    wait_empty(server)


@pytest.mark.slow
def test_a_single_request_may_be_larger_than_all_together(server: RunningServer) -> None:
    with server.connect() as peer:
        peer.sendall(raw("bytes", 10 * MEGABYTE))
        assert read_response(peer).status == 200
    wait_empty(server)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "times"), [(100, 8), (50_000, 1)])
def test_texts_count_as_the_memory_that_they_take(server: RunningServer, count: int, times: int) -> None:
    """Few of them become objects, many stay as they came."""
    packed = (b"\x02\0\0\0ab") * count
    part = {"name": "INPUT0", "datatype": "BYTES", "shape": [count], "parameters": {"binary_data_size": len(packed)}}
    head = json.dumps({"inputs": [part]}).encode()
    told = [("Inference-Header-Content-Length", str(len(head)))]
    with server.connect() as peer:
        peer.sendall(request_bytes("POST", "/v2/models/texts/infer", head + packed, told))
        # While it is looked at it counts as what came.
        wait_until(lambda: held(server)[1] > times * len(packed), RESPONSE_S, "the texts count as what they take")
        assert read_response(peer).status == 200
    wait_empty(server)


@pytest.mark.slow
def test_bodies_that_arrive_are_bounded_together(server: RunningServer) -> None:
    before = refused(server, "body")
    whole = raw("bytes", 3 * MEGABYTE)
    with server.connect() as first, server.connect() as second:
        first.sendall(whole[: 2 * MEGABYTE])
        wait_taken(server, first)
        second.sendall(whole[: 2 * MEGABYTE])
        answer = read_response(second)
        assert answer.status == 503
        assert "request bodies that are arriving" in answer.error
        first.sendall(whole[2 * MEGABYTE :])
        assert read_response(first).status == 200
    assert refused(server, "body") == before + 1
    # In chunks nobody knows the length before.
    chunk = b"%x\r\n%b\r\n" % (MEGABYTE // 2, bytes(MEGABYTE // 2))
    start = b"POST /v2/models/bytes/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect() as first, server.connect() as second:
        first.sendall(start + chunk * 5)
        wait_taken(server, first)
        second.sendall(start + chunk * 5)
        assert {read_response(second).status} == {503}
        first.sendall(b"0\r\n\r\n")
        assert read_response(first).status == 400
    wait_empty(server)


# Settings


@pytest.mark.slow
def test_429_on_demand(tmp_path: Path) -> None:
    options = ("--max-in-flight-requests=1", "--overload-status=429", "--exit-timeout-secs=5")
    with serving(tmp_path / "log", write_models(tmp_path / "models"), *options) as server:
        with waiting(server, "slow", 1), calling(server.grpc_url) as client:
            wait_held(server, 1)
            answer = server.infer("slow", numbers([1]))
            assert (answer.status, answer.reason, answer.headers["retry-after"]) == (429, "Too Many Requests", "1")
            answer = server.post("/v2/models/slow/generate", {"INPUT0": 1})
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
            with pytest.raises(InferenceServerException) as caught:
                client.infer("slow", [int32([1])], client_timeout=RESPONSE_S)
            assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        wait_empty(server)
        server.kill()


@pytest.mark.slow
def test_one_model_that_is_stuck_leaves_room_for_others(tmp_path: Path) -> None:
    options = ("--max-in-flight-requests=8", "--max-in-flight-requests-per-model=3", "--exit-timeout-secs=0")
    with serving(tmp_path / "log", write_models(tmp_path / "models"), *options) as server:
        with waiting(server, "stuck", 3):
            wait_held(server, 3)
            answer = server.infer("stuck", numbers([1]))
            assert answer.status == 503
            assert "model 'stuck' has 3 unanswered requests" in answer.error
            for n in range(20):
                assert server.infer("other", numbers([n])).status == 200
        server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["naiad", "grpcio"])
def test_both_transports_of_grpc(tmp_path: Path, transport: str) -> None:
    options = ("--max-in-flight-requests=2", f"--grpc-transport={transport}", "--exit-timeout-secs=5")
    with serving(tmp_path / "log", write_models(tmp_path / "models"), *options) as server:
        with waiting(server, "slow", 2), calling(server.grpc_url) as client:
            wait_held(server, 2)
            with pytest.raises(InferenceServerException) as caught:
                client.infer("slow", [int32([1])], client_timeout=RESPONSE_S)
            assert caught.value.status() == "StatusCode.UNAVAILABLE"
        wait_empty(server)


# Models in processes


@pytest.mark.slow
def test_python_models(tmp_path: Path) -> None:
    """Calls of accepted requests are served even without room; a process that dies leaves nothing in flight."""
    write_python_model(tmp_path / "models", "calls", CALLS_SLOW)
    write_python_model(tmp_path / "models", "doubles", DOUBLES)
    write_python_model(tmp_path / "models", "waits", WAITS, "max_batch_size: 1")
    with (
        serving(tmp_path / "log", tmp_path / "models", "--max-in-flight-requests=2", "--exit-timeout-secs=1") as server,
        calling(server.grpc_url) as client,
    ):

        def ask(model: str, value: float) -> Any:
            given = triton.InferInput("X", [1, 1], "FP32")
            given.set_data_from_numpy(np.array([[value]], np.float32))
            return client.infer(model, [given], client_timeout=RESPONSE_S).as_numpy("Y").tolist()

        held_up = threading.Thread(target=lambda: ask_quietly(ask, "waits", 1.5))
        held_up.start()
        wait_held(server, 1)
        # With it the server is full; the call that it makes is one more.
        assert ask("calls", 3) == [[6]]
        held_up.join(RESPONSE_S)
        wait_empty(server)
        first = threading.Thread(target=lambda: ask_quietly(ask, "waits", 60))
        second = threading.Thread(target=lambda: ask_quietly(ask, "waits", 0))
        first.start()
        wait_held(server, 1)
        second.start()
        wait_held(server, 2)
        with pytest.raises(InferenceServerException, match="unanswered requests"):
            ask("calls", 1)
        import psutil

        for child in psutil.Process(server.process.pid).children():
            child.kill()
        wait_empty(server)
        for thread in (first, second):
            thread.join(RESPONSE_S)
            assert not thread.is_alive()


@pytest.mark.slow
def test_a_process_has_only_so_many_calls_open(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "calls", CALLS_MANY, "max_batch_size: 1")
    batched = identity(max_batch_size=8192, delay_ms=500, extra="dynamic_batching { }")
    write_model(tmp_path / "models", "many", batched)
    with serving(tmp_path / "log", tmp_path / "models") as server:
        for count, refused_calls in ((MAX_CALLS + 500, 500), (100, 0)):
            given = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [count]}
            answer = server.infer("calls", {"inputs": [given]})
            assert answer.status == 200, answer.body
            # Some of the first may be answered before the last are sent.
            assert 0 <= answer.json()["outputs"][0]["data"][0] <= refused_calls
            wait_empty(server)


def ask_quietly(ask: Any, model: str, value: float) -> None:
    try:
        ask(model, value)
    except InferenceServerException:
        return


@pytest.mark.slow
def test_a_model_that_is_loaded_anew_takes_nothing_along(tmp_path: Path) -> None:
    options = ("--model-control-mode=explicit", "--load-model=slow", "--exit-timeout-secs=5")
    with serving(tmp_path / "log", "--model-repository", write_models(tmp_path / "models"), *options) as server:
        with waiting(server, "slow", 5) as peers:
            wait_held(server, 5)
            config = (tmp_path / "models" / "slow" / "config.pbtxt").read_text()
            (tmp_path / "models" / "slow" / "config.pbtxt").write_text(config.replace("1000", "10"))
            assert server.post("/v2/repository/models/slow/load", {}).status == 200
            assert server.infer("slow", numbers([2])).status == 200
            assert server.post("/v2/repository/models/slow/unload", {}).status == 200
            assert [read_response(peer).status for peer in peers] == [200] * 5
        wait_empty(server)


# The price of a refusal


@pytest.mark.slow
def test_refusals_are_cheap_and_hold_nobody_up(tmp_path: Path) -> None:
    """A flood of requests that have no room: all are answered, no memory stays, and health checks get through."""
    with (
        serving(tmp_path / "log", write_models(tmp_path / "models"), *OPTIONS) as server,
        waiting(server, "stuck", ROOM),
    ):
        wait_held(server, ROOM)
        flood = inference("slow") * 32
        memory = 0
        for turn in range(40):
            with server.connect() as peer:
                peer.sendall(flood)
                assert {read_pipelined(peer) for _ in range(32)} == {503}
            assert server.get("/v2/health/live").status == 200
            if turn == 10:
                memory = server.memory_bytes()
        assert server.memory_bytes() - memory < 4 * MEGABYTE
        assert server.log.count("requests are refused") < 30
        server.kill()
