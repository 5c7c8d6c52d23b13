"""Vertex AI's port: health, predictions, and redirects to the v2 API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from naiad.testing import HttpResponse, read_response, request_bytes, start_server
from support.cloud_ports import EXPLICIT, HEALTH, PREDICT, ROUTES, VERTEX_AI, environment, refused, vertex_ai
from support.served_models import SUM_AND_DIFFERENCE, identity, numbers, write_model
from support.server_port import ServerPort, loaded, server_port

BINARY = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
REDIRECT = "X-Vertex-Ai-Triton-Redirect"
NO_DEFAULT = "Expect the model repository contains only a single model if default model is not specified"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, "same", identity())
    write_model(folder, "sums", "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one model."""
    folder = tmp_path_factory.mktemp("one")
    write_model(folder, "same", identity())
    return folder


@pytest.fixture(scope="module")
def port(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPort]:
    options = ("--vertex-ai-default-model=same", "--http-max-input-size=4096", "--log-verbose=1")
    with vertex_ai(tmp_path_factory.mktemp("log") / "log", models, *options) as found:
        yield found


def redirected(port: ServerPort, target: str, body: object = b"", **headers: str) -> HttpResponse:
    return port.post(PREDICT, body, {REDIRECT: target, **headers})


def test_health_says_that_the_server_is_ready(port: ServerPort) -> None:
    answer = port.get(HEALTH)
    assert (answer.status, answer.body) == (200, b"")
    assert port.post(HEALTH, b"").status == 405


def test_a_prediction_is_made_by_the_default_model(port: ServerPort) -> None:
    for _ in range(3):
        answer = port.post(PREDICT, numbers([1, 2]), {"Content-Type": "application/json"})
        found = loaded(answer)
        assert (found["model_name"], found["outputs"][0]["data"]) == ("same", [1, 2])
        assert answer.headers["content-type"] == "application/json"


def test_tensors_behind_the_json_part(port: ServerPort) -> None:
    raw = np.arange(3, dtype=np.int32).tobytes()
    given = {"name": "INPUT0", "datatype": "INT32", "shape": [3], "parameters": {"binary_data_size": 12}}
    for output in (False, True):
        text = json.dumps({"inputs": [given], "parameters": {"binary_data_output": output}}).encode()
        for headers in ({}, {REDIRECT: "v2/models/same/infer"}):
            answer = port.post(PREDICT, text + raw, {"Content-Type": f"{BINARY}{len(text)}", **headers})
            assert answer.status == 200
            if output:
                # As on the HTTP port: the reference's responses have its header here, too.
                assert answer.body[int(answer.headers["inference-header-content-length"]) :] == raw
                assert answer.type == "application/octet-stream"
            else:
                assert answer.json()["outputs"][0]["data"] == [0, 1, 2]


@pytest.mark.parametrize("redirect", [None, "v2/models/same/infer"])
@pytest.mark.parametrize("length", ["x", "-1", "99999", "99999999999"])
def test_a_wrong_length_is_an_error_of_the_caller(port: ServerPort, length: str, redirect: str | None) -> None:
    headers = {"Content-Type": BINARY + length} | ({} if redirect is None else {REDIRECT: redirect})
    answer = port.post(PREDICT, numbers([1]), headers)
    assert (answer.status, answer.error.endswith(f"got: {length}")) == (400, True)
    assert port.get(HEALTH).status == 200


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("metrics", "nv_inference_request_success"),
        ("v2", '"extensions"'),
        ("v2/health/live", ""),
        ("v2/health/ready", ""),
        ("v2/models/stats", '"model_stats"'),
        ("v2/models/same/stats", '"model_stats"'),
        ("v2/models/same", '"platform"'),
        ("v2/models/same/versions/1", '"platform"'),
        ("v2/models/same/config", '"version_policy"'),
        ("v2/models/same/ready", ""),
        ("v2/models/same/versions/1/ready", ""),
        ("v2/systemsharedmemory/status", "[]"),
        ("v2/cudasharedmemory/status", "[]"),
        ("v2/repository/index", '"state"'),
    ],
)
def test_redirects(port: ServerPort, target: str, text: str) -> None:
    for _ in range(2):
        answer = redirected(port, target)
        assert answer.status == 200
        assert text in answer.body.decode()
        assert (answer.body == b"") == (text == "")


def test_a_redirect_to_another_model(port: ServerPort) -> None:
    rows = {"datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
    given = {"inputs": [{"name": "INPUT0", **rows}, {"name": "INPUT1", **rows}]}
    for target in ("v2/models/sums/infer", "v2/models/sums/versions/1/infer"):
        answer = redirected(port, target, given)
        assert loaded(answer)["outputs"][0]["data"] == [2 * n for n in range(16)]
    assert redirected(port, "v2/models/none/infer", given).status == 404
    assert redirected(port, "v2/models/none/ready").status == 400


@pytest.mark.parametrize(
    "target",
    [
        *("v2/repository/models/same/load", "v2/repository/models/same/unload"),
        *("v2/systemsharedmemory/region/a/register", "v2/cudasharedmemory/region/a/unregister"),
        "v2/systemsharedmemory/unregister",
    ],
)
def test_no_redirect_changes_the_server(port: ServerPort, target: str) -> None:
    answer = redirected(port, target)
    assert (answer.status, answer.body) == (403, b"")


@pytest.mark.parametrize(
    "target",
    ["", "v2/", "v2/logging", "v2/trace/setting", "v2/models/same/generate", "v2/health/no", "/v2", "metrics/"],
)
def test_other_redirects_are_refused(port: ServerPort, target: str) -> None:
    answer = redirected(port, target)
    assert (answer.status, answer.body) == (400, b"")


def test_redirects_are_posted(port: ServerPort) -> None:
    answer = port.get(PREDICT, {REDIRECT: "v2"})
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert port.get(PREDICT).status == 405


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v2/models/same/infer"), ("GET", "/"), ("GET", "/metrics"), ("POST", PREDICT + "/")]
)
def test_other_paths_are_refused_with_an_empty_body(port: ServerPort, method: str, path: str) -> None:
    answer = port.request(method, path, b"" if method == "POST" else None)
    assert (answer.status, answer.body) == (400, b"")


def test_errors_of_a_prediction(port: ServerPort) -> None:
    assert port.post(PREDICT, b"{").status == 400
    large = port.post(PREDICT, {"inputs": [], "parameters": {"text": "x" * 8192}})
    assert (large.status, "--http-max-input-size" in large.error) == (400, True)


def test_requests_are_in_the_log_and_connections_among_the_metrics(port: ServerPort) -> None:
    port.get(HEALTH)
    port.server.wait_for(f"HTTP request: GET {HEALTH}")
    assert 'naiad_connections{protocol="vertex_ai"}' in redirected(port, "metrics").body.decode()


def test_the_only_model_is_the_default(one: Path, tmp_path: Path) -> None:
    with vertex_ai(tmp_path / "log", one, "--allow-metrics=false") as found:
        assert loaded(found.post(PREDICT, numbers([3])))["outputs"][0]["data"] == [3]
        assert redirected(found, "metrics").status == 400


def test_a_default_model_may_be_loaded_by_the_first_prediction(models: Path, tmp_path: Path) -> None:
    options = (EXPLICIT, "--load-on-demand-secs=30", "--vertex-ai-default-model=same")
    with vertex_ai(tmp_path / "log", models, *options) as found:
        assert loaded(found.post(PREDICT, numbers([3])))["outputs"][0]["data"] == [3]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), NO_DEFAULT),
        ((EXPLICIT,), NO_DEFAULT),
        (("--vertex-ai-default-model=gone",), "Expect the default model 'gone' is loaded"),
        (
            (EXPLICIT, "--load-model=sums", "--vertex-ai-default-model=same"),
            "Expect the default model 'same' is loaded",
        ),
    ],
)
def test_without_a_default_model_the_server_does_not_start(
    models: Path, tmp_path: Path, options: tuple[str, ...], text: str
) -> None:
    log = refused(tmp_path / "log", models, *VERTEX_AI, *options, **ROUTES)
    assert f"failed to start Vertex AI service: {text}" in log


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"AIP_HEALTH_ROUTE": "/h"}, "API_PREDICT_ROUTE is not defined for Vertex AI endpoint"),
        ({"AIP_PREDICT_ROUTE": "/p"}, "AIP_HEALTH_ROUTE is not defined for Vertex AI endpoint"),
        ({"AIP_PREDICT_ROUTE": "p", "AIP_HEALTH_ROUTE": "/h"}, "expected a path that begins with a slash"),
        ({"AIP_PREDICT_ROUTE": "/p", "AIP_HEALTH_ROUTE": "/p"}, "expected two paths"),
    ],
)
def test_both_routes_are_needed(models: Path, tmp_path: Path, variables: dict[str, str], text: str) -> None:
    assert text in refused(tmp_path / "log", models, *VERTEX_AI, **variables)


def test_in_the_platforms_container_no_option_is_needed(one: Path, tmp_path: Path) -> None:
    variables = {"AIP_MODE": "PREDICTION", "AIP_STORAGE_URI": str(one), "AIP_HTTP_PORT": "0"}
    variables["NAIAD_VERTEX_AI_ADDRESS"] = "127.0.0.1"
    server = start_server(tmp_path / "log", "--allow-metrics=false", ports=False, env=environment(ROUTES | variables))
    try:
        server.wait_for(" is ready: ")
        found = server_port(server, "Vertex AI")
        assert found.get(HEALTH).status == 200
        assert loaded(found.post(PREDICT, numbers([3])))["outputs"][0]["data"] == [3]
        assert "Started HTTPService" not in server.log
        assert "Started GRPCInferenceService" not in server.log
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.slow
def test_until_the_models_are_loaded_predictions_are_told_to_come_again(tmp_path: Path) -> None:
    slow = 'parameters { key: "creation_delay_sec" value { string_value: "2" } }'
    write_model(tmp_path / "models", "same", identity(extra=slow))
    server = start_server(tmp_path / "log", tmp_path / "models", *VERTEX_AI, env=environment(ROUTES))
    try:
        server.wait_for("Started Vertex AI HTTPService")
        found = server_port(server, "Vertex AI")
        body = json.dumps(numbers([3])).encode()
        with server.connect(found.number) as connection:
            connection.sendall(request_bytes("POST", PREDICT, body))
            early = read_response(connection)
            assert (early.status, early.headers["retry-after"]) == (503, "1")
            assert found.get(HEALTH).status == 400
            server.wait_ready()
            # The same connection: its head is looked at again.
            connection.sendall(request_bytes("POST", PREDICT, body))
            assert loaded(read_response(connection))["outputs"][0]["data"] == [3]
        assert server.stop() == 0
    finally:
        server.kill()


def test_requests_in_flight_are_completed_before_the_end(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "slow", identity(delay_ms=600))
    server = start_server(tmp_path / "log", tmp_path / "models", *VERTEX_AI, env=environment(ROUTES))
    try:
        server.wait_ready()
        with server.connect(server_port(server, "Vertex AI").number) as connection:
            connection.sendall(request_bytes("POST", PREDICT, json.dumps(numbers([7])).encode()))
            server.wait_in_flight(1)
            server.signal()
            assert read_response(connection).json()["outputs"][0]["data"] == [7]
        assert server.wait_exit() == 0
    finally:
        server.kill()
