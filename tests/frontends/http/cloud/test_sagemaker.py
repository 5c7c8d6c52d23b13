"""SageMaker's port with one model: pings and invocations, as JSON and with tensors behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton_http

from naiad.testing import read_response, request_bytes, start_server, wait_until
from support.cloud_ports import EXPLICIT, SAGEMAKER, environment, refused, sagemaker
from support.served_models import LOOK_UP, SUM_AND_DIFFERENCE, identity, numbers, write_model
from support.server_port import ServerPort, server_port

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
REPEAT = """model_transaction_policy { decoupled: true } backend: "repeat"
    input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },
            { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
    output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]"""
STREAM = {"IN": [4, 5, 6], "DELAY": [0, 0, 0], "WAIT": [0]}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, "sums", "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    write_model(folder, "look_up", "max_batch_size: 8", graph=LOOK_UP)
    write_model(folder, "same", identity())
    write_model(folder, "slow", identity(delay_ms=600))
    write_model(folder, "repeat", REPEAT)
    return folder


@pytest.fixture(scope="module")
def port(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPort]:
    log = tmp_path_factory.mktemp("log") / "log"
    options = ("--http-max-input-size=4096", "--log-verbose=1")
    with sagemaker(log, models, *options, SAGEMAKER_TRITON_DEFAULT_MODEL_NAME="sums") as found:
        yield found


def sums(binary_inputs: bool, binary_outputs: bool) -> tuple[bytes, int]:
    """A request with rows of 0..15 and 1, and the length of its JSON part."""
    values = {"INPUT0": np.arange(16, dtype=np.int32)[None], "INPUT1": np.ones((1, 16), np.int32)}
    inputs = []
    for name, value in values.items():
        given = triton_http.InferInput(name, [1, 16], "INT32")
        given.set_data_from_numpy(value, binary_data=binary_inputs)
        inputs.append(given)
    outputs = [triton_http.InferRequestedOutput(name, binary_data=binary_outputs) for name in ("OUTPUT0", "OUTPUT1")]
    body, size = triton_http.InferenceServerClient.generate_request_body(inputs, outputs=outputs)
    return body, size or len(body)


def test_a_ping_says_that_the_server_is_ready(port: ServerPort) -> None:
    answer = port.get("/ping")
    assert (answer.status, answer.body) == (200, b"")
    assert port.post("/ping", b"").status == 405
    assert port.get("/ping?verbose=true").status == 200


def test_an_invocation_in_json(port: ServerPort) -> None:
    body, _ = sums(binary_inputs=False, binary_outputs=False)
    for _ in range(3):
        answer = port.post("/invocations", body, {"Content-Type": "application/json"})
        assert (answer.status, answer.type) == (200, "application/json")
        found = {output["name"]: output["data"] for output in answer.json()["outputs"]}
        assert found == {"OUTPUT0": list(range(1, 17)), "OUTPUT1": list(range(-1, 15))}
    assert answer.json()["model_name"] == "sums"


@pytest.mark.parametrize("binary_outputs", [False, True])
@pytest.mark.parametrize("binary_inputs", [False, True])
def test_an_invocation_with_the_length_in_the_content_type(
    port: ServerPort, binary_inputs: bool, binary_outputs: bool
) -> None:
    body, size = sums(binary_inputs, binary_outputs)
    for _ in range(3):
        answer = port.post("/invocations", body, {"Content-Type": f"{BINARY}{size}"})
        assert answer.status == 200
        length = None
        if binary_outputs:
            assert answer.headers["content-type"].startswith(BINARY)
            length = int(answer.headers["content-type"].removeprefix(BINARY))
        else:
            assert answer.headers["content-type"] == "application/json"
        assert "inference-header-content-length" not in answer.headers
        result = triton_http.InferenceServerClient.parse_response_body(answer.body, header_length=length)
        assert np.array_equal(result.as_numpy("OUTPUT0"), np.arange(1, 17)[None])


def test_a_raw_tensor_has_a_json_part_of_no_bytes(models: Path, tmp_path: Path) -> None:
    with sagemaker(tmp_path / "log", models, SAGEMAKER_TRITON_DEFAULT_MODEL_NAME="same") as found:
        raw = np.arange(3, dtype=np.int32).tobytes()
        answer = found.post("/invocations", raw, {"Content-Type": f"{BINARY}0"})
        size = int(answer.headers["content-type"].removeprefix(BINARY))
        assert answer.body[size:] == raw


@pytest.mark.parametrize(
    ("content_type", "error"),
    [
        (f"x/{BINARY}10", f"expect MIME type for binary data starts with '{BINARY}', got: x/{BINARY}10"),
        (f"{BINARY}none", "Unable to parse inference header size, got: none"),
        (BINARY, "Unable to parse inference header size, got: "),
        (f"{BINARY}99999999999", "Unable to parse inference header size, value is out of range, got: 99999999999"),
        (f"{BINARY}{'9' * 500}", "Unable to parse inference header size, value is out of range"),
        (f"{BINARY}-123", "got: -123"),
        (f"{BINARY}12345", "got: 12345"),
    ],
)
def test_a_wrong_length_is_an_error_of_the_caller(port: ServerPort, content_type: str, error: str) -> None:
    body, _ = sums(binary_inputs=True, binary_outputs=False)
    answer = port.post("/invocations", body, {"Content-Type": content_type})
    assert answer.status == 400
    assert error in answer.error
    assert port.get("/ping").status == 200


def test_codings_and_lengths_in_headers_count_for_nothing(port: ServerPort) -> None:
    body, _ = sums(binary_inputs=False, binary_outputs=False)
    answer = port.post("/invocations", body, {"Accept-Encoding": "gzip", "Inference-Header-Content-Length": "3"})
    assert answer.status == 200
    assert "content-encoding" not in answer.headers


def test_errors_of_an_invocation_have_the_statuses_of_the_v2_api(port: ServerPort) -> None:
    assert port.get("/invocations").status == 405
    assert port.post("/invocations", b"dummy").status == 400
    assert port.post("/invocations", numbers([1])).status == 400
    large = port.post("/invocations", {"inputs": [], "parameters": {"text": "x" * 8192}})
    assert large.status == 400
    assert "--http-max-input-size" in large.error


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("POST", "/v2/models/sums/infer"), ("GET", "/v2/health/ready"), ("GET", "/pings"), ("PUT", "/x")],
)
def test_other_paths_are_refused_with_an_empty_body(port: ServerPort, method: str, path: str) -> None:
    answer = port.request(method, path, b"" if method != "GET" else None)
    assert (answer.status, answer.body) == (400, b"")


def test_what_is_no_request_is_refused(port: ServerPort) -> None:
    with port.server.connect(port.number) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert read_response(connection).status == 400
    assert port.get("/ping").status == 200


def test_requests_are_in_the_log_and_connections_among_the_metrics(port: ServerPort) -> None:
    port.get("/ping")
    port.server.wait_for("HTTP request: GET /ping")
    assert 'naiad_connections{protocol="sagemaker"}' in port.server.metrics_page()


def test_an_unknown_model_says_what_to_set(models: Path, tmp_path: Path) -> None:
    with sagemaker(tmp_path / "log", models, EXPLICIT) as found:
        answer = found.post("/invocations", b"dummy")
        assert answer.status == 404
        expected = "Request for unknown model: 'unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME' is not found"
        assert answer.error == expected


def test_generated_text_and_streams(models: Path, tmp_path: Path) -> None:
    variables = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "same", "SAGEMAKER_TRITON_INFERENCE_TYPE": "generate"}
    with sagemaker(tmp_path / "log", models, **variables) as found:
        answer = found.post("/invocations", {"INPUT0": [1, 2]})
        assert (answer.status, answer.json()["OUTPUT0"]) == (200, [1, 2])
        assert found.post("/invocations", b"{").status == 400
        assert found.get("/invocations").status == 405
    variables = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "repeat", "SAGEMAKER_TRITON_INFERENCE_TYPE": "generate_stream"}
    with sagemaker(tmp_path / "log", models, **variables) as found:
        answer = found.post("/invocations", STREAM, {"Accept": "text/event-stream"})
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        events = [json.loads(text.removeprefix("data: ")) for text in answer.body.decode().split("\n\n") if text]
        assert [event["OUT"] for event in events] == [4, 5, 6]


def test_the_mode_of_the_ping(models: Path, tmp_path: Path) -> None:
    broken = tmp_path / "models"
    write_model(broken, "broken", identity(extra="nonsense"))
    options = (broken, "--exit-on-error=false")
    with sagemaker(tmp_path / "log", *options) as found:
        assert found.get("/ping").status == 400
    with sagemaker(tmp_path / "log", *options, SAGEMAKER_TRITON_PING_MODE="live") as found:
        assert found.get("/ping").status == 200
    with sagemaker(tmp_path / "log", *options, SAGEMAKER_MULTI_MODEL="true") as found:
        assert found.get("/ping").status == 200


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SAGEMAKER_TRITON_INFERENCE_TYPE", "must be one of infer, generate, generate_stream"),
        ("SAGEMAKER_TRITON_PING_MODE", "must be one of ready, live"),
    ],
)
def test_a_wrong_variable_is_said_at_the_start(models: Path, tmp_path: Path, variable: str, text: str) -> None:
    log = refused(tmp_path / "log", models, *SAGEMAKER, **{variable: "other"})
    assert f"Invalid {variable} 'other': {text}" in log


def test_ports_outside_of_the_safe_range_are_refused(models: Path, tmp_path: Path) -> None:
    options = (*SAGEMAKER[:2], "--sagemaker-port=20998", "--http-port=20999")
    log = refused(tmp_path / "log", models, *options, SAGEMAKER_SAFE_PORT_RANGE="21000-21010")
    assert "The server cannot listen to HTTP requests at port 20999, allowed port range is [21000, 21010]" in log


def test_a_port_that_is_taken_is_named(port: ServerPort, models: Path, tmp_path: Path) -> None:
    log = refused(tmp_path / "log", models, *SAGEMAKER[:2], f"--sagemaker-port={port.number}")
    assert "--sagemaker-port" in log


def test_requests_in_flight_are_completed_before_the_end(models: Path, tmp_path: Path) -> None:
    variables = environment({"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "slow"})
    server = start_server(tmp_path / "log", models, *SAGEMAKER, env=variables)
    try:
        server.wait_ready()
        found = server_port(server, "Sagemaker")
        with server.connect(found.number) as connection:
            body = json.dumps(numbers([7])).encode()
            connection.sendall(request_bytes("POST", "/invocations", body))
            server.wait_in_flight(1)
            server.signal()
            answer = read_response(connection)
            assert answer.json()["outputs"][0]["data"] == [7]
        assert server.wait_exit() == 0
        with pytest.raises(OSError):
            server.connect(found.number)
    finally:
        server.kill()


def test_many_callers_at_once(port: ServerPort) -> None:
    body, size = sums(binary_inputs=True, binary_outputs=True)
    statuses: list[int] = []

    def call() -> None:
        for _ in range(20):
            statuses.append(port.post("/invocations", body, {"Content-Type": f"{BINARY}{size}"}).status)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert statuses == [200] * 80


def test_a_caller_that_leaves_holds_nothing(port: ServerPort) -> None:
    body: Any = json.dumps(numbers([1])).encode()
    for _ in range(5):
        with port.server.connect(port.number) as connection:
            connection.sendall(request_bytes("POST", "/invocations", body)[:-4])
    count = 'naiad_connections{protocol="sagemaker"} 0'
    wait_until(lambda: count in port.server.metrics_page(), 10, "all connections are gone")
