"""Readiness over both protocols: what makes it false, what does not, and the time between the signal and the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc

from naiad.server.process import SAME_SIGNAL_S
from naiad.testing import RunningServer, request_bytes, serving, start_server, wait_until
from support.python_models import HEAD
from support.served_models import identity, numbers, write_model

CRASHES = """
class TritonPythonModel:
    def execute(self, requests):
        os._exit(7)
"""
PYTHON = """backend: "python"
input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }]
"""
EXPLICIT = ("--model-control-mode=explicit", "--load-model=first")


@contextlib.contextmanager
def grpc_client(server: RunningServer) -> Iterator[tritonclient.grpc.InferenceServerClient]:
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        yield client


def readiness(server: RunningServer, client: tritonclient.grpc.InferenceServerClient) -> list[bool]:
    """The server's over HTTP and gRPC, then the model's."""
    asked = [server.get(path).status == 200 for path in ("/v2/health/ready", "/v2/models/first/ready")]
    return [asked[0], client.is_server_ready(), asked[1], client.is_model_ready("first")]


def why(server: RunningServer) -> str:
    return server.get("/v2/health/ready?verbose=true").body.decode()


def late(seconds: float) -> str:
    return identity(extra=f'parameters {{ key: "creation_delay_sec" value {{ string_value: "{seconds}" }} }}')


@pytest.mark.slow
def test_one_more_model_that_loads_is_no_reason(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_model(models, "first", identity())
    write_model(models, "late", late(1))
    write_model(models, "broken", 'backend: "nonesuch"')
    with (
        serving(tmp_path / "log", models, *EXPLICIT) as server,
        grpc_client(server) as client,
        server.connect() as peer,
    ):
        peer.sendall(request_bytes("POST", "/v2/repository/models/late/load", b"{}"))
        wait_until(lambda: b'"LOADING"' in server.post("/v2/repository/index", {}).body, 5, "the model loads")
        assert readiness(server, client) == [True] * 4
        wait_until(lambda: b'"LOADING"' not in server.post("/v2/repository/index", {}).body, 10, "the model is loaded")
        assert readiness(server, client) == [True] * 4
        assert server.post("/v2/repository/models/broken/load", {}).status == 400
        assert readiness(server, client) == [False, False, True, True]
        assert "broken" in why(server)
        assert "nonesuch" in why(server)
        # Trying it again does not make the server ready for that long.
        (models / "broken" / "config.pbtxt").write_text(late(1))
        peer.sendall(request_bytes("POST", "/v2/repository/models/broken/load", b"{}"))
        wait_until(lambda: b'"LOADING"' in server.post("/v2/repository/index", {}).body, 5, "the model loads")
        assert readiness(server, client) == [False, False, True, True]
        wait_until(lambda: readiness(server, client) == [True] * 4, 10, "all is well")


@pytest.mark.slow
def test_a_model_that_crashes_again_and_again(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_model(models, "first", identity())
    (write_model(models, "crashes", PYTHON) / "1" / "model.py").write_text(HEAD + CRASHES)
    for strict in (True, False):
        arguments = (models, f"--strict-readiness={strict}")
        with serving(tmp_path / "log", *arguments) as server, grpc_client(server) as client:
            assert readiness(server, client) == [True] * 4
            for _ in range(6):
                assert server.infer("crashes", numbers([1])).status == 503
            wait_until(lambda: server.get("/v2/models/crashes/ready").status == 400, 5, "the model is not ready")
            if strict:
                assert readiness(server, client) == [False, False, True, True]
                assert why(server).startswith('{"error":"not ready: crashes:1: crashes_0: exit code 7')
            else:
                assert readiness(server, client) == [True] * 4
            # The other model is none the worse.
            assert server.infer("first", numbers([1])).status == 200


@pytest.mark.slow
def test_readiness_while_the_first_models_load(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_model(models, "first", late(1))
    server = start_server(tmp_path / "log", models)
    try:
        server.wait_listening()
        assert server.get("/v2/health/live").status == 200
        assert server.get("/v2/health/ready").status == 400
        server.wait_ready()
        assert server.get("/v2/health/ready").status == 200
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.slow
def test_the_shutdown_delay(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "first", identity())
    log, delay_s = tmp_path / "log", 2
    with serving(log, tmp_path / "models", f"--shutdown-delay={delay_s}") as server, grpc_client(server) as client:
        begun = time.monotonic()
        server.signal()
        wait_until(lambda: server.get("/v2/health/ready").status == 400, delay_s, "it is not ready")
        assert readiness(server, client) == [False] * 4
        assert "the server is shutting down" in why(server)
        assert server.get("/v2/health/live").status == 200
        answers = 0
        while time.monotonic() < begun + 0.75 * delay_s:
            assert server.infer("first", numbers([1])).status == 200
            answers += 1
        assert answers
        assert server.wait_exit(delay_s + 10) == 0
        assert time.monotonic() - begun >= delay_s


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_the_delay(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "first", identity())
    with serving(tmp_path / "log", tmp_path / "models", "--shutdown-delay=60") as server:
        server.signal()
        server.wait_for("serving for another 60 s")
        told_s = time.monotonic()
        wait_until(lambda: time.monotonic() - told_s > SAME_SIGNAL_S, 5, "it is another signal")
        server.signal()
        assert server.wait_exit(5) == 1


@pytest.mark.parametrize("value", ["-1", "x"])
def test_a_delay_that_is_none(tmp_path: Path, value: str) -> None:
    server = start_server(tmp_path / "log", tmp_path, f"--shutdown-delay={value}")
    try:
        assert server.wait_exit() != 0
        assert "shutdown-delay" in server.log
    finally:
        server.kill()
