"""Decoupled models of a real server: streams of responses over gRPC and HTTP, their statistics, and callers who are
slow, or leave."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from backends.test_repeat_and_square import DECOUPLED, REPEAT, SQUARE
from naiad.testing import request_bytes, wait_until
from server.test_cancelling import failed
from support.config_texts import parameters
from support.python_models import Client, client_of, write_python_model
from support.triton_inputs import input_of

WAIT_S = 20.0
FINAL = "triton_final_response"
MUCH = 2**31 - 1
# Sends blocks of 100 KB, from the main thread or from one of its own, until the caller is gone, and says how it ended
# in a file that the request names.
BLOCKS = """
import threading

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            work = (request.get_response_sender(), int(x[0]), int(x[2]))
            if x[1]:
                threading.Thread(target=self.send, args=work, daemon=True).start()
            else:
                self.send(*work)

    def send(self, sender, count, tag):
        file = os.path.join(os.path.dirname(__file__), str(tag))
        end = "all"
        for number in range(count):
            if sender.is_cancelled():
                end = "cancelled"
                break
            block = np.full(25_000, number, np.float32)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", block)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        with open(file + ".new", "w") as new:
            new.write(end)
        os.rename(file + ".new", file)
"""
# Counts up to its input, with an error in the middle.
STUMBLES = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()[0])
            sender = request.get_response_sender()
            for number in range(count):
                if number == 1:
                    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("stumbled")))
                else:
                    output = pb_utils.Tensor("Y", np.array([number], np.float32))
                    sender.send(pb_utils.InferenceResponse([output], parameters={"number": number}))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
# Sends on to its caller what the square model says.
ASKS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            count = pb_utils.get_input_tensor_by_name(request, "X").as_numpy().astype(np.int32)
            call = pb_utils.InferenceRequest(
                model_name="square", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", count)])
            found = [r for r in call.exec(decoupled=True) if len(r.output_tensors()) or r.has_error()]
            errors = sum(r.has_error() for r in found)
            counted = pb_utils.Tensor("Y", np.array([len(found), errors], np.float32))
            answers.append(pb_utils.InferenceResponse([counted]))
        return answers
"""


def write_builtin(repository: Path, name: str, text: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(f'name: "{name}" {text}')


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("decoupled")
    models = folder / "models"
    write_builtin(models, "repeat", REPEAT + DECOUPLED)
    write_builtin(models, "square", SQUARE + DECOUPLED)
    write_builtin(models, "repeat_once", REPEAT)
    write_builtin(models, "square_once", SQUARE + parameters(CUSTOM_EMPTY_COUNT=1))
    slow = parameters(CUSTOM_INFER_DELAY_NS=20_000_000, CUSTOM_OUTPUT_DELAY_NS=10_000_000)
    write_builtin(models, "square_slow", SQUARE + DECOUPLED + slow)
    write_builtin(models, "square_cancel", SQUARE + DECOUPLED + slow + parameters(CUSTOM_CANCEL_DELAY_NS=30_000_000))
    write_builtin(models, "square_fail", SQUARE + DECOUPLED + parameters(CUSTOM_FAIL_COUNT=2, CUSTOM_EMPTY_COUNT=1))
    write_builtin(models, "square_batched", SQUARE + DECOUPLED + " max_batch_size: 4 dynamic_batching { }")
    write_python_model(models, "blocks", BLOCKS, DECOUPLED)
    write_python_model(models, "stumbles", STUMBLES, DECOUPLED)
    write_python_model(models, "asks", ASKS, "")
    with client_of(models, folder / "log") as found:
        yield found


def tensor(name: str, wire: str, array: np.ndarray[Any, Any]) -> triton.InferInput:
    return input_of(triton, name, array, wire)


def number(value: int) -> list[triton.InferInput]:
    """The input of a square model."""
    return [tensor("IN", "INT32", np.array([value], np.int32))]


def repeated(count: int, delay_ms: int = 0, wait_ms: int = 0) -> list[triton.InferInput]:
    """The inputs of the repeat model."""
    return [
        tensor("IN", "INT32", np.arange(count, dtype=np.int32) + 100),
        tensor("DELAY", "UINT32", np.full(count, delay_ms, np.uint32)),
        tensor("WAIT", "UINT32", np.array([wait_ms], np.uint32)),
    ]


def floats(*values: float) -> list[triton.InferInput]:
    return [tensor("X", "FP32", np.array(values, np.float32))]


class Stream:
    """One stream of the official client."""

    def __init__(self, client: Client) -> None:
        # Streams belong to a client, which has one at a time.
        self.client = triton.InferenceServerClient(client.server.grpc_url)
        self._responses: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self.client.start_stream(callback=lambda result, error: self._responses.put((result, error)))

    def ask(self, model: str, inputs: list[triton.InferInput], end: bool = True, **more: Any) -> None:
        """Send a request; ``end``: its end is told when no response comes with it."""
        self.client.async_stream_infer(model, inputs, enable_empty_final_response=end, **more)

    def next(self) -> tuple[Any, Any]:
        """The next response and the next error, one of which is None."""
        return self._responses.get(timeout=WAIT_S)

    def told(self, output: str = "OUT") -> list[Any]:
        """What comes up to the end of one request, in short."""
        found: list[Any] = []
        while True:
            result, error = self.next()
            if error is not None:
                found.append(str(error))
                # The client says no more about an error.
                if "simulated" not in found[-1] and "stumbled" not in found[-1]:
                    return found
                continue
            response = result.get_response()
            if response.outputs:
                found += result.as_numpy(output).ravel().tolist()
            if response.parameters[FINAL].bool_param:
                return found

    def is_quiet(self) -> bool:
        return self._responses.empty()


@contextlib.contextmanager
def stream(client: Client) -> Iterator[Stream]:
    found = Stream(client)
    try:
        yield found
    finally:
        found.client.stop_stream(cancel_requests=True)
        found.client.close()


def responses_of(client: Client, model: str) -> dict[str, Any]:
    """The statistics of responses, which are the same over both protocols."""
    found: dict[str, Any] = {}
    other: dict[str, Any] = {}

    def are_of_one_moment() -> bool:
        found.update(client.server.statistics(model)["response_stats"])
        other.update(client.grpc.get_inference_statistics(model, as_json=True)["model_stats"][0])
        return bool(client.server.statistics(model)["response_stats"] == found)

    wait_until(are_of_one_moment, WAIT_S, "no response is counted between two looks at the statistics")
    for place, counted in other.get("response_stats", {}).items():
        for name, duration in counted.items():
            assert found[place][name]["count"] == int(duration.get("count", 0))
    assert set(found) == set(other.get("response_stats", {}))
    return found


def counts(found: dict[str, Any], place: int) -> dict[str, int]:
    """What was counted at a place, without what was not."""
    return {name: value["count"] for name, value in found[str(place)].items() if value["count"]}


# What comes


@pytest.mark.parametrize(
    ("model", "inputs", "expected"),
    [
        ("repeat", repeated(3), [100, 101, 102]),
        ("repeat", repeated(3, 5), [100, 101, 102]),
        ("repeat", repeated(1), [100]),
        ("repeat", repeated(0), []),
        ("repeat", repeated(5000), list(range(100, 5100))),
        ("square", number(3), [3, 3, 3]),
        ("square", number(0), []),
        ("square_fail", number(4), [4, "[StatusCode.INTERNAL] simulated failure"]),
    ],
)
def test_what_is_asked_for_comes(client: Client, model: str, inputs: Any, expected: list[Any]) -> None:
    with stream(client) as asked:
        asked.ask(model, inputs)
        found = [f"[StatusCode.INTERNAL] {f.split('] ')[-1]}" if isinstance(f, str) else f for f in asked.told()]
        assert found[: len(expected)] == expected
        # The ones that fail, and nothing else.
        assert set(found[len(expected) :]) <= {"[StatusCode.INTERNAL] simulated failure"}


def test_the_index_of_each_response(client: Client) -> None:
    with stream(client) as asked:
        asked.ask("repeat", repeated(3))
        assert asked.told("IDX") == [0, 1, 2]
        asked.ask("repeat", repeated(2), outputs=[triton.InferRequestedOutput("IDX")])
        result, _ = asked.next()
        assert [o.name for o in result.get_response().outputs] == ["IDX"]


def test_each_response_says_whose_it_is_and_whether_it_is_the_last(client: Client) -> None:
    with stream(client) as asked:
        asked.ask("square", number(2), request_id="two")
        *data, end = [asked.next()[0].get_response() for _ in range(3)]
        assert [(r.id, r.model_name, r.model_version) for r in data] == [("two", "square", "1")] * 2
        assert [r.parameters[FINAL].bool_param for r in data] == [False, False]
        assert (end.id, end.model_name, len(end.outputs)) == ("two", "square", 0)
        assert end.parameters[FINAL].bool_param
        # The end alone is for those who ask for it.
        asked.ask("square", number(0), end=False)
        asked.ask("square", number(1), end=False, request_id="after")
        assert asked.next()[0].get_response().id == "after"


def test_many_requests_of_a_stream_each_in_its_own_order(client: Client) -> None:
    with stream(client) as asked:
        for n in range(20):
            asked.ask("repeat", repeated(10, n % 3), request_id=str(n))
        found: dict[str, list[int]] = {}
        ended = 0
        while ended < 20:
            result, error = asked.next()
            assert error is None
            response = result.get_response()
            if response.parameters[FINAL].bool_param:
                ended += 1
            else:
                found.setdefault(response.id, []).append(int(result.as_numpy("OUT")[0]))
        assert found == {str(n): list(range(100, 110)) for n in range(20)}


@pytest.mark.slow
def test_a_request_waits_for_the_one_that_keeps_the_instance_busy(client: Client) -> None:
    with stream(client) as asked:
        asked.ask("repeat", repeated(1, 0, wait_ms=600), request_id="busy", end=False)
        asked.ask("repeat", repeated(1), request_id="waits", end=False)
        assert asked.next()[0].get_response().id == "busy"
        assert asked.is_quiet()
        assert asked.next()[0].get_response().id == "waits"
    queue_ns = client.server.statistics("repeat")["inference_stats"]["queue"]["ns"]
    assert queue_ns > 400_000_000


def test_wrong_requests_cost_only_themselves(client: Client) -> None:
    with stream(client) as asked:
        bad = repeated(2)
        bad[1] = tensor("DELAY", "UINT32", np.zeros(3, np.uint32))
        asked.ask("repeat", bad)
        assert "expected IN and DELAY shape to match, got [2] and [3]" in str(asked.next()[1])
        asked.ask("square", number(-5))
        assert "found -5, expected 0 or more" in str(asked.next()[1])
        asked.ask("square", number(1))
        assert asked.told() == [1]


def test_a_batch_is_answered_request_by_request(client: Client) -> None:
    with stream(client) as asked:
        for n in (1, 2, 3):
            given = tensor("IN", "INT32", np.array([[n]], np.int32))
            asked.ask("square_batched", [given], request_id=str(n))
        assert sorted(asked.told() + asked.told() + asked.told()) == [1, 2, 2, 3, 3, 3]
        asked.ask("square_batched", [tensor("IN", "INT32", np.array([[1], [1]], np.int32))])
        assert "unexpected shape for IN input" in str(asked.next()[1])


def test_an_error_in_the_middle_and_parameters_of_a_python_model(client: Client) -> None:
    with stream(client) as asked:
        asked.ask("stumbles", floats(3))
        first, _ = asked.next()
        assert first.get_response().parameters["number"].int64_param == 0
        assert "stumbled" in str(asked.next()[1])
        third, _ = asked.next()
        assert third.get_response().parameters["number"].int64_param == 2
        assert asked.next()[0].get_response().parameters[FINAL].bool_param


@pytest.mark.parametrize(
    ("model", "body", "expected"),
    [
        ("square", {"IN": 2}, [{"OUT": 2}, {"OUT": 2}]),
        ("square", {"IN": 0}, []),
        ("square", {"IN": 1, "id": "one"}, [{"OUT": 1, "id": "one"}]),
        ("repeat", {"IN": [7, 8], "DELAY": [0, 1], "WAIT": 0}, [{"IDX": 0, "OUT": 7}, {"IDX": 1, "OUT": 8}]),
        ("square_fail", {"IN": 4}, [{"OUT": 4}, {"error": "simulated failure"}, {"error": "simulated failure"}]),
    ],
)
def test_events_over_http(client: Client, model: str, body: Any, expected: list[Any]) -> None:
    answer = client.server.post(f"/v2/models/{model}/generate_stream", body)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    events = [json.loads(line[6:]) for line in answer.body.split(b"\n\n") if line]
    told = {"model_name": model, "model_version": "1"}
    assert events == [e if "error" in e else {**e, **told} for e in expected]


def test_one_answer_is_what_unary_requests_are_for(client: Client) -> None:
    one = client.server.post("/v2/models/square/generate", {"IN": 1})
    assert one.json() == {"OUT": 1, "model_name": "square", "model_version": "1"}
    assert "exactly 1 response" in client.server.post("/v2/models/square/generate", {"IN": 2}).error
    body = {"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}]}
    refused = client.server.infer("square", body)
    assert (refused.status, refused.error) == (
        501,
        "HTTP end point doesn't support models with decoupled transaction policy",
    )
    with pytest.raises(InferenceServerException) as unary:
        client.grpc.infer("square", number(1))
    assert unary.value.status() == "StatusCode.UNIMPLEMENTED"
    assert unary.value.message() == "ModelInfer RPC doesn't support models with decoupled transaction policy"


def test_a_model_that_is_not_decoupled_answers_with_the_first_response(client: Client) -> None:
    for count in (1, 4):
        found = client.grpc.infer("repeat_once", repeated(count, delay_ms=5, wait_ms=1))
        assert (found.as_numpy("OUT").tolist(), found.as_numpy("IDX").tolist()) == ([100], [0])
    with stream(client) as asked:
        asked.ask("repeat_once", repeated(4))
        assert asked.told() == [100]
        assert asked.is_quiet()
    body = {"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [MUCH]}]}
    assert client.server.infer("square_once", body).json()["outputs"][0]["data"] == [MUCH]
    # The one response is empty.
    body["inputs"][0]["data"] = [1]
    assert "ended the request without a response" in client.server.infer("square_once", body).error


def test_a_request_that_has_one_answer_is_cancelled_before_it(client: Client) -> None:
    def ran() -> int:
        return int(client.server.statistics("repeat_once")["execution_count"])

    before = ran()
    call = client.grpc.async_infer("repeat_once", repeated(1, delay_ms=600_000), lambda result, error: None)
    wait_until(lambda: ran() > before, WAIT_S, "it has begun")
    call.cancel()
    wait_until(lambda: failed(client, "repeat_once") == 1, WAIT_S, "it is cancelled")
    assert client.grpc.infer("repeat_once", repeated(1)).as_numpy("OUT").tolist() == [100]


@pytest.mark.parametrize("count", [0, 3, 3000])
def test_a_python_model_gets_all_responses_of_a_model_that_it_calls(client: Client, count: int) -> None:
    given = tensor("X", "FP32", np.array([count], np.float32))
    assert client.grpc.infer("asks", [given]).as_numpy("Y").tolist() == [count, 0]


# Statistics


def test_responses_are_counted_by_their_places(client: Client) -> None:
    with stream(client) as asked:
        for count in (4, 5):
            asked.ask("square_slow", number(count))
            assert asked.told() == [count] * count
    found = responses_of(client, "square_slow")
    both, one = ({"compute_infer": n, "compute_output": n, "success": n} for n in (2, 1))
    assert [counts(found, place) for place in range(5)] == [both] * 4 + [one]
    for counted in found.values():
        times, ns = counted["success"]["count"], {name: value["ns"] for name, value in counted.items()}
        assert ns["compute_infer"] >= 18_000_000 * times
        assert ns["compute_output"] >= 8_000_000 * times
        assert ns["success"] == ns["compute_infer"] + ns["compute_output"]
    total = client.server.statistics("square_slow")
    assert (total["inference_count"], total["execution_count"]) == (2, 2)
    assert total["inference_stats"]["compute_output"]["ns"] >= 9 * 8_000_000


def test_failed_and_empty_responses_are_counted_as_such(client: Client) -> None:
    before = responses_of(client, "square_fail")
    with stream(client) as asked:
        asked.ask("square_fail", number(5))
        asked.told()
        # The last response that fails ends nothing.
        wait_until(lambda: len(responses_of(client, "square_fail")) == 5, WAIT_S, "all are counted")
    found = responses_of(client, "square_fail")
    already = {place: counts(before, int(place)) for place in before}
    assert counts(found, 4) == {"compute_infer": 1, "empty_response": 1}
    for place, kind in ((0, "success"), (1, "success"), (2, "fail")):
        assert counts(found, place).get(kind, 0) == already.get(str(place), {}).get(kind, 0) + 1


def test_a_cancelled_request_is_counted_where_it_was_noticed(client: Client) -> None:
    with stream(client) as asked:
        asked.ask("square_cancel", number(1000))
        asked.next()
        asked.client.stop_stream(cancel_requests=True)
    cancelled = {}

    def is_counted() -> bool:
        found = responses_of(client, "square_cancel")
        cancelled.update({p: found[p]["cancel"] for p in found if found[p]["cancel"]["count"]})
        return bool(cancelled)

    wait_until(is_counted, WAIT_S, "the cancellation is counted")
    ((place, duration),) = cancelled.items()
    assert 1 <= int(place) < 10
    assert duration["ns"] >= 28_000_000
    assert len(responses_of(client, "square_cancel")) == int(place) + 1


def test_a_python_model_has_them_too(client: Client) -> None:
    with stream(client) as asked:
        asked.ask("stumbles", floats(4))
        for _ in range(5):
            asked.next()
    found = responses_of(client, "stumbles")
    for place in (0, 2, 3):
        assert counts(found, place)["success"] >= 1
        assert found[str(place)]["compute_output"]["ns"] > 0
    assert counts(found, 1)["fail"] >= 1
    # The end alone is no response.
    assert "4" not in found
    assert client.server.statistics("stumbles")["inference_stats"]["compute_output"]["ns"] > 0


def test_places_are_bounded(client: Client) -> None:
    with stream(client) as asked:
        asked.ask("square", number(3000))
        assert len(asked.told()) == 3000
    assert len(responses_of(client, "square")) == 1024


# Callers who are slow, or leave


class DeafPeer:
    """A client that reads nothing: the server's windows for it stay as they are."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._connection.initiate_connection()

    def ask(self, model: str, name: str, wire: str, array: np.ndarray[Any, Any]) -> None:
        """One more stream with one request."""
        request = service_pb2.ModelInferRequest(model_name=model)
        request.inputs.add(name=name, datatype=wire, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
        message = request.SerializeToString()
        stream_id = self._connection.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/inference.GRPCInferenceService/ModelStreamInfer"),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        self._connection.send_headers(stream_id, headers)
        self._connection.send_data(stream_id, b"\0" + len(message).to_bytes(4, "big") + message)
        self.socket.sendall(self._connection.data_to_send())


def open_requests(client: Client, model: str) -> int:
    """Requests to a model that have begun and are not over."""
    found = client.server.statistics(model)
    inference = found["inference_stats"]
    return int(found["execution_count"]) - int(inference["success"]["count"]) - int(inference["fail"]["count"])


@pytest.mark.slow
def test_a_thousand_streams_that_never_read(client: Client) -> None:
    server = client.server
    before = server.memory_bytes()
    with contextlib.ExitStack() as peers:
        for _ in range(20):
            peer = DeafPeer(server.grpc)
            peers.callback(peer.socket.close)
            for _ in range(50):
                peer.ask("square", "IN", "INT32", np.array([MUCH], np.int32))
        wait_until(lambda: open_requests(client, "square") == 1000, 3 * WAIT_S, "all of them run")
        # They are held, so the server has nothing to do, and others are answered.
        with stream(client) as asked:
            for _ in range(5):
                asked.ask("square", number(2000))
                assert len(asked.told()) == 2000
        assert server.memory_bytes() - before < 400 << 20
    wait_until(lambda: open_requests(client, "square") == 0, WAIT_S, "none runs any more")


@pytest.mark.slow
def test_a_reader_that_leaves_in_the_middle_frees_what_it_held(client: Client) -> None:
    server = client.server
    for _ in range(3):
        with server.connect() as peer:
            body = json.dumps({"IN": MUCH}).encode()
            peer.sendall(request_bytes("POST", "/v2/models/square/generate_stream", body))
            received = 0
            while received < 600_000:
                received += len(peer.recv(1 << 16))
            assert open_requests(client, "square") == 1
        wait_until(lambda: open_requests(client, "square") == 0, WAIT_S, "the request is over")


def end_of(client: Client, tag: int) -> str:
    """How a request to the model ``blocks`` ended; "" before."""
    file = client.server.log_file.parent / "models" / "blocks" / "1" / str(tag)
    return file.read_text() if file.exists() else ""


@pytest.mark.slow
def test_a_python_model_waits_for_a_slow_caller(client: Client) -> None:
    blocks, tag = 500, 1
    server = client.server
    before = server.memory_bytes()
    with server.connect() as peer:
        body = json.dumps({"X": [blocks, 1, tag]}).encode()
        peer.sendall(request_bytes("POST", "/v2/models/blocks/generate_stream", body))
        assert peer.recv(1000).startswith(b"HTTP/1.1 200")
        # Its thread waits, and the next requests of the instance are answered.
        for _ in range(3):
            with stream(client) as asked:
                asked.ask("blocks", floats(5, 0, 0))
                for _ in range(5):
                    assert asked.next()[1] is None
        assert end_of(client, tag) == ""
        assert server.memory_bytes() - before < 100 << 20
        received = b""
        total = 0
        while not received.endswith(b"0\r\n\r\n"):
            piece = peer.recv(1 << 20)
            assert piece
            total += len(piece)
            received = (received + piece)[-200:]
    # JSON says each of the 25,000 numbers with four characters at least.
    assert total > blocks * 100_000
    assert b"error" not in received
    wait_until(lambda: end_of(client, tag) == "all", WAIT_S, "the model is done")


@pytest.mark.slow
def test_the_main_thread_of_a_python_model_waits_for_a_while_only(client: Client) -> None:
    with client.server.connect() as deaf:
        body = json.dumps({"X": [400, 0, 2]}).encode()
        deaf.sendall(request_bytes("POST", "/v2/models/blocks/generate_stream", body))
        # What it sends is kept, 16 MiB at most, and then it is told that nobody wants it.
        wait_until(lambda: end_of(client, 2) == "cancelled", WAIT_S, "the model gives up")
    with stream(client) as asked:
        asked.ask("blocks", floats(1, 0, 0))
        assert asked.next()[1] is None


@pytest.mark.parametrize("how", ["cancel", "close", "http"])
def test_a_model_hears_that_its_caller_is_gone(client: Client, how: str) -> None:
    many, tag = 1_000_000, 10 + ("cancel", "close", "http").index(how)
    if how == "http":
        with client.server.connect() as peer:
            body = json.dumps({"X": [many, 1, tag]}).encode()
            peer.sendall(request_bytes("POST", "/v2/models/blocks/generate_stream", body))
            peer.recv(1000)
    elif how == "close":
        deaf = DeafPeer(client.server.grpc)
        deaf.ask("blocks", "X", "FP32", np.array([many, 1, tag], np.float32))
        wait_until(lambda: open_requests(client, "blocks") == 1, WAIT_S, "it runs")
        deaf.socket.close()
    else:
        asked = Stream(client)
        asked.ask("blocks", floats(many, 1, tag))
        asked.next()
        asked.client.stop_stream(cancel_requests=True)
        asked.client.close()
    wait_until(lambda: end_of(client, tag) == "cancelled", WAIT_S, "the model hears it")
    wait_until(lambda: open_requests(client, "blocks") == 0, WAIT_S, "the request is over")


@pytest.mark.slow
def test_a_deadline_ends_the_responses(client: Client) -> None:
    caller = triton.InferenceServerClient(client.server.grpc_url)
    found: queue.Queue[tuple[Any, Any]] = queue.Queue()
    caller.start_stream(callback=lambda result, error: found.put((result, error)), stream_timeout=1.0)
    caller.async_stream_infer("blocks", floats(1_000_000, 1, 20))
    while (got := found.get(timeout=WAIT_S))[1] is None:
        assert got[0] is not None
    assert "Deadline" in str(got[1])
    wait_until(lambda: end_of(client, 20) == "cancelled", WAIT_S, "the model hears it")
    caller.close()
