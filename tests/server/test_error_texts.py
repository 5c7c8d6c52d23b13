"""What every route says about failures: how long the texts are, whose they are, and when to come again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.errors import MAX_TEXT
from naiad.testing import RunningServer, read_response, request_bytes, serving, wait_until
from support.python_models import write_python_model

FAILS = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("BEGIN " + 40_000 * "x" + " END")
"""
BODY = {"id": "r7", "inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [3]}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("models")
    write_python_model(folder / "models", "fails", FAILS)
    with serving(folder / "log", folder / "models", "--http-max-connections=2") as running:
        yield running


def is_cut(text: str) -> bool:
    return "BEGIN xxx" in text and "xxx END" in text and len(text) <= MAX_TEXT + 100


@pytest.mark.slow
def test_long_texts_are_cut_over_http(server: RunningServer) -> None:
    assert is_cut(server.infer("fails", BODY).error)
    assert is_cut(server.post("/v2/models/fails/generate", {"X": [1.0]}).error)
    events = server.post("/v2/models/fails/generate_stream", {"X": [1.0]}).body
    assert is_cut(json.loads(events.removeprefix(b"data: "))["error"])


def test_long_texts_are_cut_over_grpc(server: RunningServer) -> None:
    tensor = tritonclient.grpc.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        with pytest.raises(InferenceServerException) as failure:
            client.infer("fails", [tensor])
        assert is_cut(failure.value.message())
        found: list[InferenceServerException | None] = []
        client.start_stream(lambda result, error: found.append(error))
        client.async_stream_infer("fails", [tensor])
        wait_until(lambda: found, 10, "the error")
        client.stop_stream()
    assert found[0] is not None and is_cut(found[0].message())


def test_the_log_has_the_whole_text_and_the_id(server: RunningServer) -> None:
    for path in ("infer", "generate", "generate_stream"):
        body = {**BODY, "id": f"of-{path}"} if path == "infer" else {"X": [1.0], "id": f"of-{path}"}
        assert server.post(f"/v2/models/fails/{path}", body).status in (400, 500)
        line = next(line for line in server.log.splitlines() if f"[request id: of-{path}]" in line)
        assert 40_000 * "x" in line


def test_one_connection_too_many_may_come_again(server: RunningServer) -> None:
    with server.connect() as one, server.connect() as two:
        for peer in (one, two):
            peer.sendall(request_bytes("GET", "/v2", None))
            assert read_response(peer).status == 200
        answer = server.get("/v2")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.slow
def test_what_is_not_ready_among_other_questions(tmp_path: Path) -> None:
    folder = write_python_model(tmp_path / "models", "broken", FAILS)
    (folder / "1" / "model.py").write_text("nonsense")
    with serving(tmp_path / "log", tmp_path / "models", "--exit-on-error=false") as server:
        assert server.get("/v2/health/ready").body == b""
        for query in ("verbose=true", "a=b&verbose=true"):
            answer = server.get(f"/v2/health/ready?{query}")
            assert (answer.status, "broken:1: " in answer.error) == (400, True)
