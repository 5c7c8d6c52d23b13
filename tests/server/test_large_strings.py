"""Tensors of very many strings: they arrive as they were sent, whatever way they take; nobody else waits for them."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from interop.calls import channel, stub
from naiad.frontends.http.json_worker.pool import MANY_STRINGS
from naiad.tensor.packed_bytes import AT_ONCE_STRINGS
from naiad.testing import HttpResponse, RunningServer, read_response, request_bytes, serving, wait_until
from support.python_models import HEAD
from support.served_models import identity, tensor, write_model

MANY = 3 * AT_ONCE_STRINGS
CALL_S = 60.0
REVERSES = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x[::-1])]))
        return answers
"""
CALLS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            call = pb_utils.InferenceRequest(model_name="python", requested_output_names=["OUTPUT0"], inputs=[x])
            answers.append(call.exec())
        return answers
"""
THRICE = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            sender = request.get_response_sender()
            for n in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.roll(x, n))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
# Says how many strings came so far in its sequence, and how many now.
COUNTS = """
class TritonPythonModel:
    def initialize(self, args):
        self.counts = []

    def execute(self, requests):
        answers = []
        for request in requests:
            self.counts.append(pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy().size)
            told = np.array([b"%d" % n for n in self.counts], np.object_).reshape(1, -1)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", told)]))
        return answers
"""
RESIZES = """
class TritonPythonModel:
    def execute(self, requests):
        made = np.array([b"a"] * 5000, np.object_)
        answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", made)])
        made.resize(4000, refcheck=False)
        return [answer]
"""
STRINGS = """<ir_version: 8, opset_import: ["": 17]>
same (string[N] INPUT0) => (string[N] OUTPUT0) { OUTPUT0 = Identity (INPUT0) }"""
ON_CPU = "instance_group [ { kind: KIND_CPU count: 1 } ]"
TENSORS = f"input [ {tensor('INPUT0', 'TYPE_STRING', '-1')} ] output [ {tensor('OUTPUT0', 'TYPE_STRING', '-1')} ]"
SEQUENCES = """sequence_batching { max_sequence_idle_microseconds: 60000000 control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }"""
ENSEMBLE = """ensemble_scheduling { step [
  { model_name: "python" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" }
    output_map { key: "OUTPUT0" value: "middle" } },
  { model_name: "onnx" model_version: -1 input_map { key: "INPUT0" value: "middle" }
    output_map { key: "OUTPUT0" value: "OUTPUT0" } } ] }"""

DATA = {
    "various": ["ü" * (n % 5) + str(n) for n in range(MANY)],
    "alike": ["abc"] * MANY,
    "long": ["x" * 300_000, "", "y" * 100_000],
    "some": [str(n) for n in range(2000)],
}
# Whether the model gives the elements in the reverse of their order.
MODELS = {
    "same": False,
    "threaded": False,
    "onnx": False,
    "hosted": False,
    "python": True,
    "ensemble": True,
    "calls": True,
}


def write_python(models: Path, name: str, source: str, more: str = "", batch: int = 0) -> None:
    config = f'backend: "python" max_batch_size: {batch} {TENSORS} {ON_CPU} {more}'
    (write_model(models, name, config) / "1" / "model.py").write_text(HEAD + source)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("strings")
    models = folder / "models"
    write_model(models, "same", identity("TYPE_STRING"))
    write_model(models, "threaded", identity("TYPE_STRING", delay_ms=1))
    write_model(models, "rows", identity("TYPE_STRING", "2", 8, 50, "dynamic_batching { preferred_batch_size: [ 4 ] }"))
    write_model(models, "onnx", f'backend: "onnxruntime" {TENSORS} {ON_CPU}', graph=STRINGS)
    own = 'parameters { key: "execution" value { string_value: "process" } }'
    write_model(models, "hosted", f'backend: "onnxruntime" {TENSORS} {ON_CPU} {own}', graph=STRINGS)
    write_python(models, "python", REVERSES)
    write_python(models, "calls", CALLS)
    write_python(models, "thrice", THRICE, "model_transaction_policy { decoupled: true }")
    write_python(models, "counts", COUNTS, SEQUENCES, 1)
    write_python(models, "resizes", RESIZES)
    write_python(models, "cached", REVERSES, "response_cache { enable: true }")
    write_model(models, "ensemble", f'platform: "ensemble" {TENSORS} {ENSEMBLE}')
    with serving(folder / "log", "--model-repository", models, "--cache-config", "local,size=20000000") as running:
        yield running
        assert "Traceback" not in running.log


# Ways to ask


def packed(elements: Sequence[str | bytes]) -> bytes:
    raw = [e.encode() if isinstance(e, str) else e for e in elements]
    return b"".join(part for e in raw for part in (struct.pack("<I", len(e)), e))


def unpacked(raw: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(raw):
        size = struct.unpack_from("<I", raw, at)[0]
        found.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def binary_request(raw: bytes, shape: Sequence[int]) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    given = {"name": "INPUT0", "datatype": "BYTES", "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    wanted = {"name": "OUTPUT0", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [given], "outputs": [wanted]}).encode()
    return head + raw, (("Inference-Header-Content-Length", str(len(head))),)


def ask_binary(server: RunningServer, model: str, raw: bytes, shape: Sequence[int]) -> HttpResponse:
    body, headers = binary_request(raw, shape)
    return server.request("POST", f"/v2/models/{model}/infer", body, headers)


def message(model: str, raw: bytes, shape: Sequence[int], typed: bool = False, **more: Any) -> pb.ModelInferRequest:
    made = pb.ModelInferRequest(model_name=model, **more)
    given = made.inputs.add(name="INPUT0", datatype="BYTES", shape=shape)
    if typed:
        given.contents.bytes_contents.extend(unpacked(raw))
    else:
        made.raw_input_contents.append(raw)
    return made


def over_http_binary(server: RunningServer, model: str, elements: list[str]) -> list[bytes]:
    answer = ask_binary(server, model, packed(elements), [len(elements)])
    assert answer.status == 200, answer.body[:300]
    assert answer.json()["outputs"][0]["shape"] == [len(elements)]
    return unpacked(answer.body[int(answer.headers["inference-header-content-length"]) :])


def over_http_json(server: RunningServer, model: str, elements: list[str]) -> list[bytes]:
    given = {"name": "INPUT0", "datatype": "BYTES", "shape": [len(elements)], "data": elements}
    answer = server.infer(model, {"inputs": [given]})
    assert answer.status == 200, answer.body[:300]
    return [e.encode() for e in answer.json()["outputs"][0]["data"]]


def over_grpc(server: RunningServer, model: str, elements: list[str], typed: bool = False) -> list[bytes]:
    with channel(server) as opened:
        answer = stub(opened).ModelInfer(message(model, packed(elements), [len(elements)], typed), timeout=CALL_S)
    assert list(answer.outputs[0].shape) == [len(elements)]
    return unpacked(answer.raw_output_contents[0])


def over_grpc_typed(server: RunningServer, model: str, elements: list[str]) -> list[bytes]:
    return over_grpc(server, model, elements, typed=True)


def over_stream(server: RunningServer, model: str, elements: list[str]) -> list[bytes]:
    asked = [message(model, packed(elements), [len(elements)], typed) for typed in (True, False, True)]
    with channel(server) as opened:
        answers = list(stub(opened).ModelStreamInfer(iter(asked), timeout=CALL_S))
    assert [a.error_message for a in answers] == ["", "", ""]
    found = [unpacked(a.infer_response.raw_output_contents[0]) for a in answers]
    assert found[0] == found[1] == found[2]
    return found[0]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", [over_http_binary, over_http_json, over_grpc, over_grpc_typed, over_stream])
def test_they_arrive_as_they_were_sent(
    server: RunningServer, model: str, way: Callable[[RunningServer, str, list[str]], list[bytes]]
) -> None:
    for elements in DATA.values():
        wanted = [e.encode() for e in elements]
        assert way(server, model, elements) == (wanted[::-1] if MODELS[model] else wanted)


def test_every_response_of_a_decoupled_model(server: RunningServer) -> None:
    elements = DATA["various"]
    with channel(server) as opened:
        asked = message("thrice", packed(elements), [len(elements)])
        answers = list(stub(opened).ModelStreamInfer(iter([asked]), timeout=CALL_S))
    found = [unpacked(a.infer_response.raw_output_contents[0]) for a in answers if a.infer_response.outputs]
    wanted = [e.encode() for e in elements]
    assert found == [wanted, wanted[-1:] + wanted[:-1], wanted[-2:] + wanted[:-2]]


def test_each_request_of_a_batch_gets_its_rows(server: RunningServer) -> None:
    """Batches of four rows: of one, one and two."""
    with ThreadPoolExecutor(3) as callers:
        sent = [[chr(97 + i) * 40_000, str(i)] * rows for i, rows in enumerate([1, 1, 2])]
        asked = [callers.submit(ask_binary, server, "rows", packed(e), [len(e) // 2, 2]) for e in sent]
        for elements, answer in zip(sent, [a.result() for a in asked], strict=True):
            assert answer.status == 200, answer.body[:300]
            raw = answer.body[int(answer.headers["inference-header-content-length"]) :]
            assert unpacked(raw) == [e.encode() for e in elements]


def test_kept_answers_are_the_same(server: RunningServer) -> None:
    elements = DATA["some"]
    found = [over_http_binary(server, "cached", elements) for _ in range(3)] + [over_grpc(server, "cached", elements)]
    assert all(one == [e.encode() for e in elements[::-1]] for one in found)
    assert over_http_json(server, "cached", elements) == found[0]
    statistics = server.statistics("cached")
    assert statistics["inference_stats"]["cache_hit"]["count"] >= 1
    # Too large to be looked up.
    assert over_http_binary(server, "cached", DATA["various"])[-1] == b"0"


def test_the_requests_of_a_sequence_keep_their_order(server: RunningServer) -> None:
    """A long one, which is read in a thread, and short ones right behind it."""
    sizes = [MANY, 1, 2, 2 * MANY, 3, 1]

    def asked() -> Iterator[pb.ModelInferRequest]:
        for at, size in enumerate(sizes):
            made = message("counts", packed(["a", "bc"] * size), [1, 2 * size], typed=at % 3 == 0)
            made.parameters["sequence_id"].int64_param = 7
            made.parameters["sequence_start"].bool_param = at == 0
            made.parameters["sequence_end"].bool_param = at == len(sizes) - 1
            yield made

    with channel(server) as opened:
        answers = list(stub(opened).ModelStreamInfer(asked(), timeout=CALL_S))
    assert [a.error_message for a in answers] == [""] * len(sizes)
    assert unpacked(answers[-1].infer_response.raw_output_contents[0]) == [b"%d" % (2 * size) for size in sizes]


def test_an_array_that_was_resized_is_an_error(server: RunningServer) -> None:
    answer = ask_binary(server, "resizes", packed(["a"]), [1])
    assert answer.status == 500
    assert "was made with shape [5000], and has 4000 elements by now" in answer.error


# What is wrong with them


def problems(server: RunningServer, model: str, raw: bytes, count: int) -> set[str]:
    """What the ways of a serialised tensor say."""
    answer = ask_binary(server, model, raw, [count])
    assert answer.status == 400
    found = {answer.error}
    with channel(server) as opened:
        with pytest.raises(grpc.RpcError) as caught:
            stub(opened).ModelInfer(message(model, raw, [count]), timeout=CALL_S)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        found.add(caught.value.details())
        good = message(model, packed(["a"]), [1])
        answers = list(
            stub(opened).ModelStreamInfer(iter([message(model, raw, [count], id="7"), good]), timeout=CALL_S)
        )
        assert answers[0].infer_response.id == "7" and not answers[1].error_message
        found.add(answers[0].error_message.replace("[request id: 7]", "[request id: <id_unknown>]"))
    return found


@pytest.mark.parametrize("model", ["same", "python", "onnx"])
def test_malformed_ones_are_refused_like_small_ones(server: RunningServer, model: str) -> None:
    place = f"for inference input 'INPUT0' for model '{model}'"
    for count in (3, MANY):
        raw = packed(["ab"] * (count - 1) + ["abc"])
        for sent, promised, text in (
            (
                raw[:-1],
                count,
                f"incomplete string data {place}, expecting string of length 3 but only 2 bytes available",
            ),
            (
                raw[:-5],
                count,
                f"incomplete string length indicator {place}, expecting 4 bytes but only 2 bytes available. Please "
                "make sure the string length indicator is in one buffer.",
            ),
            (raw, count + 1, f"expected {count + 1} string elements {place}, got {count}"),
            (raw, count - 1, f"unexpected number of string elements {count} {place}, expecting {count - 1}"),
        ):
            assert problems(server, model, sent, promised) == {f"[request id: <id_unknown>] {text}"}
    assert server.statistics(model)["inference_stats"]["fail"]["count"] == 0


def test_typed_contents_are_refused_like_small_ones(server: RunningServer) -> None:
    with channel(server) as opened:
        for count in (3, MANY):
            for wrong in (-1, 1):
                with pytest.raises(grpc.RpcError) as caught:
                    stub(opened).ModelInfer(
                        message("same", packed(["ab"] * count), [count + wrong], True), timeout=CALL_S
                    )
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                said = f"got {count}" if wrong > 0 else f"unexpected number of string elements {count}"
                assert said in caught.value.details()
            asked = message("same", packed(["ab"] * count), [count], True)
            asked.inputs[0].datatype = "INT32"
            with pytest.raises(grpc.RpcError, match="INT32") as caught:
                stub(opened).ModelInfer(asked, timeout=CALL_S)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            asked = message("nobody", packed(["ab"] * count), [count], True)
            with pytest.raises(grpc.RpcError) as caught:
                stub(opened).ModelInfer(asked, timeout=CALL_S)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE or "unknown model" in caught.value.details()
            # Data twice.
            asked = message("same", packed(["ab"] * count), [count], True)
            asked.raw_input_contents.append(packed(["ab"] * count))
            with pytest.raises(grpc.RpcError, match="contents field must not be specified"):
                stub(opened).ModelInfer(asked, timeout=CALL_S)


# Nobody waits for them


class Beside:
    """A caller that asks whether the server lives, again and again."""

    def __init__(self, server: RunningServer) -> None:
        self.answers = 0
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Beside:
        self._thread.start()
        wait_until(lambda: self.answers, 20, "the other caller is answered")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        asked = request_bytes("GET", "/v2/health/live", None)
        with self._server.connect() as peer:
            while not self._over.is_set():
                peer.sendall(asked)
                assert read_response(peer).status == 200
                self.answers += 1


@pytest.mark.slow
@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
def test_others_are_answered_meanwhile(server: RunningServer, typed: bool) -> None:
    """Before, a single answer came while a million strings were read and one while they were written."""
    count = 1_000_000
    asked = message("python", packed([str(n) for n in range(count)]), [count], typed)
    with channel(server) as opened, Beside(server) as beside:
        call = stub(opened).ModelInfer.future(asked, timeout=CALL_S)
        before = beside.answers
        answer = call.result()
        assert beside.answers - before > 100
    assert answer.raw_output_contents[0].endswith(b"\1\0\0\0000")


@pytest.mark.slow
def test_callers_that_give_up(server: RunningServer) -> None:
    """In the middle of what a thread does for them; the server goes on as before."""
    raw = packed([str(n) for n in range(200_000)])
    for typed in (False, True):
        with channel(server) as opened:
            for _ in range(5):
                call = stub(opened).ModelInfer.future(message("python", raw, [200_000], typed))
                call.cancel()
            stream = stub(opened).ModelStreamInfer(iter([message("python", raw, [200_000], typed)] * 3))
            stream.cancel()
    body, headers = binary_request(raw, [200_000])
    for _ in range(5):
        with server.connect() as peer:
            peer.sendall(request_bytes("POST", "/v2/models/python/infer", body, headers))
    assert over_http_binary(server, "python", DATA["various"])[-1] == b"0"
    wait_until(lambda: _in_flight(server) == 0, 20, "nothing is left of them")


def _in_flight(server: RunningServer) -> float:
    page = server.metrics_page()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("naiad_requests_in_flight "))


@pytest.mark.slow
def test_a_server_that_ends_answers_them(server: RunningServer, tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_python(models, "python", REVERSES)
    with serving(tmp_path / "log", "--model-repository", models) as ending, channel(ending) as opened:
        elements = [str(n) for n in range(300_000)]
        results: SimpleQueue[Any] = SimpleQueue()
        for typed in (False, True):
            call = stub(opened).ModelInfer.future(message("python", packed(elements), [300_000], typed), timeout=CALL_S)
            call.add_done_callback(results.put)
        wait_until(lambda: _in_flight(ending) > 0, 20, "one is being read")
        ending.signal()
        for _ in range(2):
            call = results.get(timeout=CALL_S)
            if call.code() is grpc.StatusCode.OK:
                assert call.result().raw_output_contents[0].endswith(packed(["1", "0"]))
            else:
                assert call.code() is grpc.StatusCode.UNAVAILABLE, call.details()
        assert ending.wait_exit() == 0
        assert "Traceback" not in ending.log


def test_json_with_many_strings_goes_to_the_process(server: RunningServer) -> None:
    elements = ["é" * 8] * (MANY_STRINGS + 1)
    assert over_http_json(server, "python", elements) == [e.encode() for e in elements]
