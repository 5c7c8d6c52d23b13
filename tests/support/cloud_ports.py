"""Servers with the ports of cloud platforms, and requests to these ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from naiad.testing import server_environment, serving, start_server
from support.server_port import ServerPort, server_port

SAGEMAKER: Final = ("--allow-sagemaker=true", "--sagemaker-address=127.0.0.1", "--sagemaker-port=0")
VERTEX_AI: Final = ("--allow-vertex-ai=true", "--vertex-ai-address=127.0.0.1", "--vertex-ai-port=0")
ROUTES: Final = {"AIP_PREDICT_ROUTE": "/v1/models/7:predict", "AIP_HEALTH_ROUTE": "/v1/models/7"}
PREDICT: Final = ROUTES["AIP_PREDICT_ROUTE"]
HEALTH: Final = ROUTES["AIP_HEALTH_ROUTE"]
EXPLICIT: Final = "--model-control-mode=explicit"


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with ``variables`` as the only ones of a platform."""
    own = {k: v for k, v in server_environment().items() if not k.startswith(("AIP_", "SAGEMAKER_"))}
    return own | dict(variables)


@contextmanager
def sagemaker(log: Path, *arguments: object, **variables: str) -> Iterator[ServerPort]:
    """A server that is ready, by its port for SageMaker."""
    with serving(log, *SAGEMAKER, *arguments, env=environment(variables)) as running:
        yield server_port(running, "Sagemaker")
        assert "handler failed" not in running.log
        assert "an operation on a model failed" not in running.log


@contextmanager
def vertex_ai(log: Path, *arguments: object, **variables: str) -> Iterator[ServerPort]:
    """A server that is ready, by its port for Vertex AI."""
    with serving(log, *VERTEX_AI, *arguments, env=environment(ROUTES | variables)) as running:
        yield server_port(running, "Vertex AI")
        assert "handler failed" not in running.log
        assert "an operation on a model failed" not in running.log


def refused(log: Path, *arguments: object, **variables: str) -> str:
    """The log of a server that does not start."""
    server = start_server(log, *arguments, env=environment(variables))
    try:
        assert server.wait_exit() == 1
        return server.log
    finally:
        server.kill()
