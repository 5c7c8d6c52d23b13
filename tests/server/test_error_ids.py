"""The id of a request in what says that it failed: the response, over either protocol, and the line of the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import unquote

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

import naiad
from naiad import errors
from naiad.errors import NaiadError
from naiad.telemetry.logs.server_log import LogSettings, ServerLog

ARGUMENTS = {errors.ScopeError: ("infer",), errors.RateLimitError: (1,)}
FIELD = "inference-request-id"


def error_classes(base: type[NaiadError] = NaiadError) -> Iterator[type[NaiadError]]:
    """Every class of ``errors.py``."""
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
        yield from error_classes(kind)


KINDS = {kind.__name__: kind for kind in (NaiadError, *error_classes())}


def fail(kind: np.ndarray) -> np.ndarray:
    """Fail with the error of that name."""
    name = kind.flat[0].decode()
    raise KINDS[name](f"this is a {name}", *ARGUMENTS.get(KINDS[name], ()))


@dataclass(frozen=True, slots=True)
class Served:
    """A server whose model fails as it is asked to, and its log in JSON."""

    http: str
    grpc: str
    log: Path

    def lines(self, request_id: str) -> list[dict[str, object]]:
        """The lines about one request."""
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in found if line.get("request_id") == request_id]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("log") / "naiad.log"
    server = naiad.Server(http_port=0, grpc_port=0)
    server.bind("fail", fail, inputs={"kind": naiad.BYTES[1]}, outputs={"kind": naiad.BYTES[1]})
    with ServerLog(LogSettings(log_format="json", log_file=str(path), log_verbose_level=1)), server:
        yield Served(server.http_url, server.grpc_url, path)


def ask_http(served: Served, body: object, model: str = "fail") -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(served.http, timeout=20)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", f"/v2/models/{model}/infer", raw)
    response = connection.getresponse()
    found = response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    connection.close()
    return found


def request_of(name: str, request_id: str) -> dict[str, object]:
    return {"id": request_id, "inputs": [{"name": "kind", "datatype": "BYTES", "shape": [1], "data": [name]}]}


def message_of(name: str, request_id: str, model: str = "fail") -> service_pb2.ModelInferRequest:
    message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    message.inputs.add(name="kind", datatype="BYTES", shape=[1]).contents.bytes_contents.append(name.encode())
    return message


def failed_call(served: Served, message: service_pb2.ModelInferRequest) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    with grpc.insecure_channel(served.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(message, timeout=20)
    call = caught.value
    return call.code(), call.details(), dict(call.trailing_metadata())


def test_all_classes_are_walked() -> None:
    declared = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, NaiadError) and value.__module__ == errors.__name__
    }
    assert set(KINDS) == declared
    assert len(KINDS) > 25


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_error_names_its_request(served: Served, name: str) -> None:
    kind = KINDS[name]
    status, headers, body = ask_http(served, request_of(name, f"http-{name}"))
    assert status == kind.http_status
    assert f"this is a {name}" in json.loads(body)["error"]
    assert headers[FIELD] == f"http-{name}"

    code, text, trailing = failed_call(served, message_of(name, f"grpc-{name}"))
    assert code.value[0] == kind.grpc_code
    assert f"this is a {name}" in text
    assert trailing[FIELD] == f"grpc-{name}"

    for request_id in (f"http-{name}", f"grpc-{name}"):
        (line,) = [line for line in served.lines(request_id) if f"this is a {name}" in str(line["message"])]
        assert line["model"] == "fail"
        assert line["level"] == ("verbose" if kind is errors.CancelledError else "warning")
        assert str(line["message"]).startswith(f"[request id: {request_id}] ")


@pytest.mark.parametrize(
    ("body", "model", "status"),
    [
        ({"id": "refused", "inputs": []}, "fail", 400),
        ({"id": "refused", "inputs": [{"name": "kind", "datatype": "FP32", "shape": [1], "data": [1]}]}, "fail", 400),
        ({"id": "refused", "inputs": []}, "missing", 404),
    ],
)
def test_a_request_that_its_model_does_not_get_is_named(served: Served, body: object, model: str, status: int) -> None:
    before = len(served.lines("refused"))
    found, headers, _ = ask_http(served, body, model)
    assert (found, headers[FIELD]) == (status, "refused")
    refused = [line for line in served.lines("refused")[before:] if "refused for" in str(line["message"])]
    assert [(line["level"], line["model"]) for line in refused] == [("verbose", model)]


@pytest.mark.parametrize(("model", "code"), [("fail", "INVALID_ARGUMENT"), ("missing", "NOT_FOUND")])
def test_a_call_that_its_model_does_not_get_is_named(served: Served, model: str, code: str) -> None:
    message = service_pb2.ModelInferRequest(model_name=model, id=f"call-{model}")
    message.inputs.add(name="kind", datatype="FP32", shape=[1])
    found, _, trailing = failed_call(served, message)
    assert (found.name, trailing[FIELD]) == (code, f"call-{model}")
    assert any("refused" in str(line["message"]) for line in served.lines(f"call-{model}"))


def test_a_response_without_an_id_has_no_field(served: Served) -> None:
    assert FIELD not in ask_http(served, request_of("InternalError", ""))[1]
    assert FIELD not in ask_http(served, b"{")[1]
    assert FIELD not in failed_call(served, message_of("InternalError", ""))[2]


@pytest.mark.parametrize("request_id", ["a\r\nInjected: 1", "grün ✓", "%41", "x" * 1000])
def test_an_id_of_any_characters_is_encoded(served: Served, request_id: str) -> None:
    status, headers, _ = ask_http(served, request_of("InternalError", request_id))
    assert status == 500
    assert "injected" not in headers
    assert unquote(headers[FIELD]) == request_id[:256]
    assert unquote(failed_call(served, message_of("InternalError", request_id))[2][FIELD]) == request_id[:256]


def test_calls_are_logged_with_their_ids(served: Served) -> None:
    failed_call(served, message_of("InternalError", "seen-grpc"))
    assert any("gRPC call: /inference" in str(line["message"]) for line in served.lines("seen-grpc"))
