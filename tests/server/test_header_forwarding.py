"""Headers that become parameters of requests, as a Python model sees them, over both protocols and both transports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.config.messages import message_class
from naiad.testing import RunningServer, serving
from support.served_models import tensor
from support.served_transports import TRANSPORTS

TELLS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        told = [np.array([r.parameters()], object) for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", t)]) for t in told]
"""
CONFIG = f"""
backend: "python" input [ {tensor("IN", "TYPE_INT32", "1")} ] output [ {tensor("OUT", "TYPE_STRING", "1")} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]"""
PATTERN = "^(x-|priority|sequence_id$|triton_)"
INPUT = {"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}
BINARY = {**INPUT, "parameters": {"binary_data_size": 4}}
del BINARY["data"]


@pytest.fixture(scope="module", params=TRANSPORTS)
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("forwarding")
    version = folder / "models" / "tells" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(TELLS)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    patterns = ("--http-header-forward-pattern", PATTERN, "--grpc-header-forward-pattern", PATTERN)
    models = ("--model-repository", folder / "models", "--grpc-transport", request.param)
    with serving(folder / "log", *models, *patterns) as running:
        yield running
        assert "Exception in callback" not in running.log


def told(server: RunningServer, body: bytes, *headers: tuple[str, str]) -> Any:
    answer = server.request("POST", "/v2/models/tells/infer", body, headers)
    assert answer.status == 200, answer.body
    length = int(answer.headers.get("inference-header-content-length", len(answer.body)))
    found = json.loads(answer.body[:length])["outputs"][0]
    return json.loads(found["data"][0] if "data" in found else answer.body[length + 4 :])


def test_http_headers_under_the_names_that_callers_write(server: RunningServer) -> None:
    body = json.dumps({"inputs": [INPUT]}).encode()
    for _ in range(3):
        found = told(server, body, ("X-User", "me"), ("x-Team", "a"), ("x-team", "b"), ("Other", "no"))
        assert found == {"X-User": "me", "x-Team": "a, b", "x-team": "a, b"}
        assert told(server, body, ("X-User", "you")) == {"X-User": "you"}
        assert told(server, body) == {}


def test_spaces_around_the_value_of_an_http_header_are_no_part_of_it(server: RunningServer) -> None:
    body = json.dumps({"inputs": [INPUT]}).encode()
    for _ in range(3):
        assert told(server, body, ("X-User", "  two words \t ")) == {"X-User": "two words"}


def test_parameters_of_every_type_stay_beside_http_headers(server: RunningServer) -> None:
    given = {"s": "text", "i": -7, "b": True, "f": 1.5, "X-User": "not me"}
    body = json.dumps({"inputs": [INPUT], "parameters": given}).encode()
    assert told(server, body, ("X-User", "me")) == {**given, "X-User": "me"}
    assert told(server, body) == given


def test_a_parameter_with_the_name_of_a_header_in_another_case_is_refused(server: RunningServer) -> None:
    text = "parameter 'x-user' has the name of the header 'X-User', which is forwarded as a parameter, in another case"
    given = {"parameters": {"x-user": "not me"}}
    whole = json.dumps({"inputs": [INPUT], **given}).encode()
    head = json.dumps({"inputs": [BINARY], **given}).encode()
    length = ("Inference-Header-Content-Length", str(len(head)))
    for _ in range(3):
        for body, headers in ((whole, []), (head + bytes(4), [length])):
            answer = server.request("POST", "/v2/models/tells/infer", body, [("X-User", "me"), *headers])
            assert answer.status == 400
            assert text in answer.error
            assert told(server, body, *headers) == {"x-user": "not me"}
            assert told(server, body, ("X-Team", "a"), *headers) == {"x-user": "not me", "X-Team": "a"}


def test_grpc_parameters_with_the_name_of_metadata_in_another_case_are_refused(server: RunningServer) -> None:
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        given = tritonclient.grpc.InferInput("IN", [1], "INT32")
        given.set_data_from_numpy(np.int32([1]))
        for _ in range(3):
            with pytest.raises(InferenceServerException, match="'X-User' has the name of the header 'x-user'"):
                client.infer("tells", [given], headers={"x-user": "me"}, parameters={"X-User": "not me"})
            found = client.infer("tells", [given], headers={"x-user": "me"}, parameters={"X-Other": "b"})
            assert json.loads(found.as_numpy("OUT")[0]) == {"x-user": "me", "X-Other": "b"}


def test_binary_requests_that_are_recognised_and_raw_ones_have_them_too(server: RunningServer) -> None:
    text = json.dumps({"inputs": [BINARY]}).encode()
    length = ("Inference-Header-Content-Length", str(len(text)))
    for user in ("a", "b", "a", "a", "a"):
        assert told(server, text + bytes(4), length, ("X-User", user)) == {"X-User": user}
        assert told(server, bytes(4), ("Inference-Header-Content-Length", "0"), ("X-User", user)) == {"X-User": user}


def test_reserved_http_headers_are_refused(server: RunningServer) -> None:
    body = json.dumps({"inputs": [INPUT]}).encode()
    for name in ("Priority", "sequence_id", "triton_final_response", "Triton_any"):
        answer = server.request("POST", "/v2/models/tells/infer", body, [(name, "1")])
        assert (answer.status, answer.type) == (400, "application/json")
        assert answer.error == f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
    assert told(server, body, ("Timeout", "1"), ("sequence_ids", "2")) == {}


def grpc_told(client: tritonclient.grpc.InferenceServerClient, headers: dict[str, str], **more: Any) -> Any:
    given = tritonclient.grpc.InferInput("IN", [1], "INT32")
    given.set_data_from_numpy(np.ones(1, np.int32))
    return json.loads(client.infer("tells", [given], headers=headers, **more).as_numpy("OUT")[0])


def test_grpc_metadata(server: RunningServer) -> None:
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        for user in ("a", "b", "a", "a"):
            assert grpc_told(client, {"x-user": user, "other": "no"}) == {"x-user": user}
        assert grpc_told(client, {"x-user": " a b "}) == {"x-user": " a b "}
        assert grpc_told(client, {}) == {}
        given = {"s": "text", "i": 3, "b": False, "f": 0.5, "x-user": "not me"}
        assert grpc_told(client, {"x-user": "me"}, parameters=given) == {**given, "x-user": "me"}
        with pytest.raises(InferenceServerException, match="Header 'priority' is reserved for Triton usage"):
            grpc_told(client, {"priority": "1"})


def test_the_metadata_of_a_stream_go_to_each_of_its_requests(server: RunningServer) -> None:
    request = message_class("ModelInferRequest")(model_name="tells", raw_input_contents=[bytes(4)])
    request.inputs.add(name="IN", datatype="INT32", shape=[1])
    path = "/inference.GRPCInferenceService/ModelStreamInfer"
    answer = message_class("ModelStreamInferResponse").FromString
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.stream_stream(path)
        sent = [request.SerializeToString()] * 3
        found = [answer(raw) for raw in call(iter(sent), metadata=[("x-user", "me")], timeout=20)]
        assert [json.loads(a.infer_response.raw_output_contents[0][4:]) for a in found] == [{"x-user": "me"}] * 3
        found = [answer(raw) for raw in call(iter(sent[:1]), metadata=[("sequence_id", "1")], timeout=20)]
        assert "Header 'sequence_id' is reserved" in found[0].error_message
