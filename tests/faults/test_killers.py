"""Single requests that end other servers, or leave their callers hanging: here each gets an answer, and others too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from naiad.testing import RunningServer, serving, wait_until
from support.python_models import write_python_model
from support.served_models import identity, numbers, write_model

ANSWER_S = 15.0
BACK_S = 15.0
HUGE = 2**63 - 1
ENDS = """
class TritonPythonModel:
    def execute(self, requests):
        what = int(pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy().flat[0])
        answers = [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros((1, 1), np.float32))]) for _ in requests]
        if what == 1:
            return None
        if what == 2:
            return []
        if what == 3:
            return answers * 2
        if what == 4:
            return "no list"
        if what == 5:
            return [None]
        if what == 6:
            raise SystemExit("enough")
        if what == 7:
            os._exit(3)
        if what == 8:
            import ctypes
            ctypes.string_at(0)
        if what == 9:
            raise KeyboardInterrupt
        if what == 10:
            return [7]
        if what == 11:
            os.kill(os.getpid(), signal.SIGKILL)
        if what == 12:
            raise MemoryError
        return answers
"""
LEAVES = {7, 8, 11}
"""Those after which the process is gone: that can be tried again."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("killers")
    models = folder / "models"
    write_model(models, "same", identity())
    write_model(models, "batched", identity(max_batch_size=8))
    write_model(models, "slow", identity(delay_ms=1))
    write_model(models, "texts", identity("TYPE_STRING"))
    write_model(models, "slow_texts", identity("TYPE_STRING", delay_ms=1))
    write_python_model(models, "ends", ENDS)
    with serving(folder / "log", models) as running:
        yield running
        assert "handler failed" not in running.log


@pytest.fixture(autouse=True)
def others_are_served(server: RunningServer, stub: Any) -> Iterator[None]:
    """After each test, the same process answers others over both protocols."""
    yield
    assert server.process.poll() is None
    assert server.infer("same", numbers([1, -2])).json()["outputs"][0]["data"] == [1, -2]
    assert server.infer("slow", numbers([3])).json()["outputs"][0]["data"] == [3]
    answer = stub.ModelInfer(message("same", [2], np.array([4, 5], np.int32).tobytes()), timeout=ANSWER_S)
    assert answer.raw_output_contents[0] == np.array([4, 5], np.int32).tobytes()


def message(model: str, shape: list[int], raw: bytes, wire: str = "INT32") -> Any:
    found = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[raw])
    given = found.inputs.add(name="INPUT0", datatype=wire)
    given.shape.extend(shape)
    return found


# Shapes

SHAPES: dict[str, list[Any]] = {
    "the known killer": [HUGE, 16],
    "two factors": [2**32, 2**32],
    "exactly 2^64": [2**16] * 4,
    "wraps to one": [3, 12297829382473034411],
    "bytes overflow": [2**62],
    "bytes overflow with 4 bytes each": [2**61, 1],
    "most elements": [HUGE],
    "beyond 2^63": [2**63],
    "beyond 2^64": [2**70],
    "beyond all numbers": [10**400],
    "negative": [-1],
    "two negatives": [-2, -2],
    "smallest": [-(2**63)],
    "zero and huge": [0, HUGE, HUGE],
    "a float": [1.5],
    "a whole float": [1.0],
    "a large float": [1e30],
    "a text": ["1"],
    "true": [True],
    "null": [None],
    "a list": [[1]],
    "rank 65": [1] * 65,
    "rank 10000": [1] * 10_000,
    "rank 100000": [2] * 100_000,
}


def is_int64(dim: Any) -> bool:
    return type(dim) is int and -(2**63) <= dim < 2**63


MODELS = ("same", "batched", "slow", "texts")


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_over_http(server: RunningServer, name: str) -> None:
    for model in MODELS:
        wire = "BYTES" if model == "texts" else "INT32"
        one = "a" if model == "texts" else 1
        given = {"name": "INPUT0", "datatype": wire, "shape": SHAPES[name]}
        answer = server.infer(model, {"inputs": [{**given, "data": [one]}]})
        assert answer.status == 400, (model, answer.body[:300])
        assert answer.error
        for size in (4, 0, HUGE):
            part = {**given, "parameters": {"binary_data_size": size}}
            head = json.dumps({"inputs": [part]}).encode()
            told = [("Inference-Header-Content-Length", str(len(head)))]
            body = head + bytes(min(size, 4))
            answer = server.request("POST", f"/v2/models/{model}/infer", body, told)
            assert answer.status == 400, (model, size, answer.body[:300])


@pytest.mark.parametrize("name", [n for n, shape in SHAPES.items() if all(map(is_int64, shape))])
def test_shapes_over_grpc(stub: Any, name: str) -> None:
    for model in MODELS:
        wire = "BYTES" if model == "texts" else "INT32"
        for raw in (b"", bytes(4)):
            with pytest.raises(grpc.RpcError) as caught:
                stub.ModelInfer(message(model, SHAPES[name], raw, wire), timeout=ANSWER_S)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, (model, caught.value)
        typed = message(model, SHAPES[name], b"", wire)
        del typed.raw_input_contents[:]
        if model == "texts":
            typed.inputs[0].contents.bytes_contents.append(b"a")
        else:
            typed.inputs[0].contents.int_contents.append(1)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(typed, timeout=ANSWER_S)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, (model, caught.value)
        answers = list(stub.ModelStreamInfer(iter([message(model, SHAPES[name], bytes(4), wire)]), timeout=ANSWER_S))
        assert len(answers) == 1
        assert answers[0].error_message


# Classification


@pytest.mark.parametrize("model", ["texts", "slow_texts"])
@pytest.mark.parametrize("count", [1, 1000, HUGE])
def test_classes_of_bytes(server: RunningServer, stub: Any, model: str, count: int) -> None:
    given = {"name": "INPUT0", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}
    asked = {"name": "OUTPUT0", "parameters": {"classification": count}}
    for binary in ({}, {"binary_data": True}):
        wanted = {**asked, "parameters": {**asked["parameters"], **binary}}  # type: ignore[dict-item]
        answer = server.infer(model, {"inputs": [given], "outputs": [wanted]})
        assert answer.status == 400, answer.body[:300]
        assert "class" in answer.error
    request = message(model, [1], b"\x01\0\0\0a", "BYTES")
    output = request.outputs.add(name="OUTPUT0")
    output.parameters["classification"].int64_param = count
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request, timeout=ANSWER_S)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    (streamed,) = stub.ModelStreamInfer(iter([request]), timeout=ANSWER_S)
    assert streamed.error_message


# What execute gives back


def ask_ends(server: RunningServer, what: int) -> tuple[int, str]:
    given = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [what]}
    answer = server.infer("ends", {"inputs": [given]})
    return answer.status, "" if answer.status == 200 else answer.error


@pytest.mark.parametrize("what", range(1, 13))
def test_what_execute_may_do(server: RunningServer, stub: Any, what: int) -> None:
    wait_until(lambda: server.get("/v2/models/ends/ready").status == 200, BACK_S, "the model is ready")
    status, text = ask_ends(server, what)
    assert status == (503 if what in LEAVES else 500), text
    assert text
    wait_until(lambda: server.get("/v2/models/ends/ready").status == 200, BACK_S, "the model is back")
    request = service_pb2.ModelInferRequest(model_name="ends")
    given = request.inputs.add(name="X", datatype="FP32")
    given.shape.extend([1, 1])
    given.contents.fp32_contents.append(what)
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request, timeout=ANSWER_S)
    expected = {grpc.StatusCode.UNAVAILABLE} if what in LEAVES else {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
    assert caught.value.code() in expected, caught.value
    wait_until(lambda: server.get("/v2/models/ends/ready").status == 200, BACK_S, "the model is back again")
    assert ask_ends(server, 0) == (200, "")


def test_a_stream_over_all_of_it(server: RunningServer, stub: Any) -> None:
    """One call: each request is answered in its place, whatever its model does."""

    def requests() -> Iterator[Any]:
        for what in (0, 1, 2, 3, 4, 6, 0):
            request = service_pb2.ModelInferRequest(model_name="ends", id=str(what))
            given = request.inputs.add(name="X", datatype="FP32")
            given.shape.extend([1, 1])
            given.contents.fp32_contents.append(what)
            yield request

    answers = list(stub.ModelStreamInfer(requests(), timeout=ANSWER_S))
    assert [bool(a.error_message) for a in answers] == [False, True, True, True, True, True, False]
    assert [a.infer_response.id for a in answers] == ["0", "1", "2", "3", "4", "6", "0"]
