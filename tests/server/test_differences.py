"""Rows of "Differences on purpose" about single requests, over real sockets and both protocols where both have it.

Each request is one that the reference refuses in another way, takes, or ends by.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import HttpResponse, RunningServer, read_response, request_bytes, serving
from support.grpc_peers import CALL_S
from support.python_models import write_python_model
from support.served_models import SUM_AND_DIFFERENCE, identity, numbers, tensor, write_model
from support.shared_regions import PROTOCOLS, Caller, memory

OPTIONAL = """
input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } ]
input [ { name: "B" data_type: TYPE_INT32 dims: [ 1 ] optional: true } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
GIVES_A = """
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())])
            for r in requests
        ]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("differences")
    models = folder / "models"
    for name, kind in (
        ("halves", "FP16"),
        ("brains", "BF16"),
        ("floats", "FP32"),
        ("texts", "STRING"),
        ("ints", "INT32"),
    ):
        write_model(models, name, identity(f"TYPE_{kind}", "-1", max_batch_size=4))
    write_model(models, "sum", "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    # The dims have the full rank of the graph, and there is no max_batch_size.
    dims = "-1, 16"
    inputs = ", ".join(tensor(name, "TYPE_INT32", dims) for name in ("INPUT0", "INPUT1"))
    outputs = ", ".join(tensor(name, "TYPE_INT32", dims) for name in ("OUTPUT0", "OUTPUT1"))
    write_model(models, "full", f"input [ {inputs} ] output [ {outputs} ]", graph=SUM_AND_DIFFERENCE)
    write_python_model(models, "optional", GIVES_A, "max_batch_size: 0", tensors=OPTIONAL)
    with serving(folder / "log", models, "--allow-client-shm=true") as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture
def stub(server: RunningServer) -> Iterator[Any]:
    with grpc.insecure_channel(server.grpc_url) as opened:
        yield service_pb2_grpc.GRPCInferenceServiceStub(opened)


def message(model: str, datatype: str, shape: list[int], raw: bytes | None = None, version: str = "") -> Any:
    request = pb.ModelInferRequest(model_name=model, model_version=version)
    request.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    if raw is not None:
        request.raw_input_contents.append(raw)
    return request


def refused(stub: Any, request: Any) -> str:
    """The text of a call that the caller is at fault for."""
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request, timeout=CALL_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value
    return str(caught.value.details())


def binary(server: RunningServer, model: str, datatype: str, shape: list[int], raw: bytes, *more: Any) -> HttpResponse:
    part = {"name": "INPUT0", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [part]}).encode()
    told = ("Inference-Header-Content-Length", str(len(head)))
    return server.request("POST", f"/v2/models/{model}/infer", head + raw, [told, *more])


# Classification


@pytest.mark.parametrize(
    ("model", "wire", "dtype"), [("halves", "FP16", np.float16), ("brains", "BF16", ml_dtypes.bfloat16)]
)
@pytest.mark.parametrize("library", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_classes_of_half_precision(server: RunningServer, library: Any, model: str, wire: str, dtype: Any) -> None:
    values = np.array([[1, 3.5, 2]], dtype)
    given = library.InferInput("INPUT0", [1, 3], wire)
    given.set_data_from_numpy(values)
    wanted = [library.InferRequestedOutput("OUTPUT0", class_count=2)]
    with library.InferenceServerClient(server.url if library is triton_http else server.grpc_url) as client:
        found = client.infer(model, [given], outputs=wanted).as_numpy("OUTPUT0")
    assert found.tolist() == [[b"3.500000:1", b"2.000000:2"]]


@pytest.mark.parametrize("library", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_nan_is_no_best_class(server: RunningServer, library: Any) -> None:
    given = library.InferInput("INPUT0", [1, 4], "FP32")
    given.set_data_from_numpy(np.array([[np.nan, 1, np.inf, np.nan]], np.float32))
    wanted = [library.InferRequestedOutput("OUTPUT0", class_count=4)]
    with library.InferenceServerClient(server.url if library is triton_http else server.grpc_url) as client:
        found = client.infer("floats", [given], outputs=wanted).as_numpy("OUTPUT0")
    assert [int(text.decode().split(":")[1]) for text in found[0]] == [2, 1, 0, 3]


# What an inference request says


def test_texts_whose_length_is_wrong_name_their_request(server: RunningServer, stub: Any) -> None:
    packed = b"\x09\0\0\0short"
    answer = binary(server, "texts", "BYTES", [1, 1], packed)
    assert answer.status == 400
    said = refused(stub, message("texts", "BYTES", [1, 1], packed))
    for text in (answer.error, said):
        assert "[request id: <id_unknown>]" in text
        assert "incomplete string data for inference input 'INPUT0' for model 'texts'" in text


def test_texts_that_json_cannot_hold(server: RunningServer) -> None:
    answer = binary(server, "texts", "BYTES", [1, 1], b"\x02\0\0\0\xff\xfe")
    assert answer.status == 400
    assert "binary" in answer.error
    whole = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1, 1], "data": ["é"]}]}).encode()
    assert server.request("POST", "/v2/models/texts/infer", whole).json()["outputs"][0]["data"] == ["é"]


def test_a_batch_of_nothing(server: RunningServer, stub: Any) -> None:
    said = [server.infer("ints", numbers([], [0, 2])), binary(server, "ints", "INT32", [0, 2], b"")]
    assert [answer.status for answer in said] == [400, 400]
    texts = [*(answer.error for answer in said), refused(stub, message("ints", "INT32", [0, 2], b""))]
    assert all("at least 1" in text for text in texts), texts


def test_too_many_inputs(server: RunningServer, stub: Any) -> None:
    one = {"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "data": [1]}
    answer = server.infer("ints", {"inputs": [one, {**one, "name": "MORE"}]})
    assert answer.status == 400
    request = message("ints", "INT32", [1, 1], bytes(4))
    request.inputs.add(name="MORE", datatype="INT32", shape=[1, 1])
    request.raw_input_contents.append(bytes(4))
    for text in (answer.error, refused(stub, request)):
        assert "missing required input(s) []" in text


def test_an_output_that_is_unknown_is_named_before_an_input_that_does_not_fit(server: RunningServer, stub: Any) -> None:
    """This is no difference, and is not to become one. Source: the reference."""
    answer = server.infer("ints", {**numbers([1] * 5, [5, 1]), "outputs": [{"name": "NONE"}]})
    request = message("ints", "INT32", [5, 1], bytes(20))
    request.outputs.add(name="NONE")
    assert answer.status == 400
    for text in (answer.error, refused(stub, request)):
        assert text == "unexpected inference output 'NONE' for model 'ints'"


def test_two_lengths_of_the_json_part(server: RunningServer) -> None:
    answer = binary(server, "ints", "INT32", [1, 1], bytes(4), ("Inference-Header-Content-Length", "10"))
    assert answer.status == 400


@pytest.mark.parametrize("version", ["1x", " 1", "1 ", "+1", "0x1", "1.0", "-1"])
def test_versions_that_are_no_numbers(stub: Any, version: str) -> None:
    assert version in refused(stub, message("ints", "INT32", [1, 1], bytes(4), version))
    assert stub.ModelInfer(message("ints", "INT32", [1, 1], bytes(4), "1"), timeout=CALL_S).model_version == "1"


def test_a_negative_timeout(server: RunningServer, stub: Any) -> None:
    request = message("ints", "INT32", [1, 1], bytes(4))
    request.parameters["timeout"].int64_param = -1
    assert "timeout" in refused(stub, request)
    assert server.infer("ints", {**numbers([1], [1, 1]), "parameters": {"timeout": -1}}).status == 400


# Bodies


def packed_body(values: int = 2) -> bytes:
    return json.dumps(numbers([1] * values, [1, values])).encode()


def test_names_of_codings_in_any_case(server: RunningServer) -> None:
    for name, pack in (("GZIP", gzip.compress), ("Deflate", zlib.compress)):
        headers = [("Content-Encoding", name), ("Accept-Encoding", name)]
        answer = server.request("POST", "/v2/models/ints/infer", pack(packed_body()), headers)
        assert (answer.status, answer.headers["content-encoding"]) == (200, name.lower())


@pytest.mark.parametrize(
    "body",
    [gzip.compress(packed_body())[:-9], gzip.compress(packed_body()) + b"more", packed_body(), b"\x1f\x8b"],
    ids=["cut off", "with more behind", "not packed", "two bytes"],
)
def test_bodies_that_are_not_what_they_say(server: RunningServer, body: bytes) -> None:
    answer = server.request("POST", "/v2/models/ints/infer", body, [("Content-Encoding", "gzip")])
    assert answer.status == 400
    assert "gzip" in answer.error.lower()


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compressed_body_of_nothing(server: RunningServer, coding: str) -> None:
    """Not the raw request that an empty body is. Source: the reference."""
    answer = server.request("POST", "/v2/models/ints/infer", b"", [("Content-Encoding", coding)])
    assert (answer.status, answer.error) == (400, "nothing to be decompressed")


@pytest.mark.parametrize("path", ["/v2/logging", "/v2/trace/setting", "/v2/repository/index"])
@pytest.mark.parametrize("body", [b"[]", b"5", b'"x"', b"null"])
def test_settings_that_are_no_object(server: RunningServer, path: str, body: bytes) -> None:
    assert server.request("POST", path, body).status == 400


@pytest.mark.parametrize(("value", "found"), [("yes", "STRING"), (None, "null"), ([], "an array"), ({}, "an object")])
def test_an_index_of_models_that_are_perhaps_ready(server: RunningServer, value: object, found: str) -> None:
    answer = server.post("/v2/repository/index", {"ready": value})
    assert (answer.status, answer.error) == (400, f"Invalid value for 'ready': expected a boolean, found {found}")


@pytest.mark.parametrize(
    "setting", [{"trace_rate": "-1"}, {"trace_rate": "5x"}, {"trace_count": "1e3"}, {"log_frequency": "-1"}]
)
def test_trace_settings_that_would_be_cut_off(server: RunningServer, setting: dict[str, str]) -> None:
    before = server.get("/v2/trace/setting").json()
    answer = server.post("/v2/trace/setting", setting)
    assert answer.status == 400
    assert next(iter(setting.values())) in answer.error
    assert server.get("/v2/trace/setting").json() == before


def test_one_wrong_setting_changes_none(server: RunningServer) -> None:
    before = server.get("/v2/logging").json()
    assert server.post("/v2/logging", {"log_info": not before["log_info"], "log_verbose_level": "many"}).status == 400
    assert server.get("/v2/logging").json() == before


# Generate


@pytest.mark.parametrize("way", ["generate", "generate_stream"])
def test_generate_without_an_input_that_is_needed(server: RunningServer, way: str) -> None:
    answer = server.post(f"/v2/models/optional/{way}", {"B": 1})
    assert answer.status == 400
    assert "'A'" in answer.error
    assert server.post("/v2/models/optional/generate", {"A": 3}).json()["Y"] == 3


# Regions


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_memory_under_two_names(server: RunningServer, protocol: str) -> None:
    caller = Caller(server, protocol)
    with memory(64) as shared:
        shared.put(np.array([1, 2], np.int32))
        for name in ("first", "second"):
            caller.register(name, shared)
        for name in ("first", "second"):
            given = caller.input("INPUT0", "INT32", [1, 2], name, 8)
            assert caller.client.infer("ints", [given]).as_numpy("OUTPUT0").tolist() == [[1, 2]]
        with pytest.raises(InferenceServerException, match="already in manager"):
            caller.register("first", shared)
        caller.client.unregister_system_shared_memory()
    caller.client.close()


def test_names_of_regions_in_paths(server: RunningServer) -> None:
    with memory(64) as shared:
        body = {"key": shared.key, "offset": 0, "byte_size": 64}
        assert server.post("/v2/systemsharedmemory/region/a%20c/register", body).status == 200
        (found,) = server.get("/v2/systemsharedmemory/status").json()
        assert found["name"] == "a c"
        assert server.post("/v2/systemsharedmemory/region/a%20c/unregister", {}).status == 200
        assert server.get("/v2/systemsharedmemory/status").json() == []
        part = {"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "parameters": {"shared_memory_region": "a c"}}
        answer = server.infer("ints", {"inputs": [part]})
        assert answer.status == 400
        assert "shared_memory_byte_size" in answer.error


# Models


def test_dims_with_the_full_rank_of_the_graph(server: RunningServer) -> None:
    assert server.get("/v2/models/full/config").json()["max_batch_size"] == 0
    values = [{"name": f"INPUT{n}", "datatype": "INT32", "shape": [3, 16], "data": [n + 1] * 48} for n in range(2)]
    outputs = server.infer("full", {"inputs": values}).json()["outputs"]
    assert {o["name"]: set(o["data"]) for o in outputs} == {"OUTPUT0": {3}, "OUTPUT1": {-1}}


def test_pipelined_answers_stay_in_order_beside_refusals(server: RunningServer) -> None:
    """What is refused at once waits for its turn like any other answer."""
    bad = request_bytes("POST", "/v2/models/ints/infer", b"{")
    good = request_bytes("POST", "/v2/models/ints/infer", packed_body())
    with server.connect() as peer:
        for body, status in ((bad, 400), (good, 200), (bad, 400), (good, 200)):
            peer.sendall(body)
            assert read_response(peer).status == status
