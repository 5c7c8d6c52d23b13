"""Servers with the ports of cloud platforms, and requests to these ports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from naiad.testing import HttpResponse, RunningServer, server_environment, serving, start_server

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


@dataclass(frozen=True, slots=True)
class CloudPort:
    """The port of a platform on a server that runs."""

    server: RunningServer
    number: int

    def request(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """Send a request: bytes as they are, anything but None as JSON."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        return self.server.request(method, path, raw, tuple((headers or {}).items()), port=self.number)

    def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> HttpResponse:
        return self.request("POST", path, body, headers)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
        return self.request("GET", path, None, headers)


def cloud_port(server: RunningServer, name: str) -> CloudPort:
    """The port for the platform ``name``, ``Sagemaker`` or ``Vertex AI``."""
    found = re.search(rf"Started {name} HTTPService at 127\.0\.0\.1:(\d+)\b", server.log)
    assert found is not None, server.log
    return CloudPort(server, int(found[1]))


@contextmanager
def sagemaker(log: Path, *arguments: object, **variables: str) -> Iterator[CloudPort]:
    """A server that is ready, by its port for SageMaker."""
    with serving(log, *SAGEMAKER, *arguments, env=environment(variables)) as running:
        yield cloud_port(running, "Sagemaker")
        assert "handler failed" not in running.log
        assert "an operation on a model failed" not in running.log


@contextmanager
def vertex_ai(log: Path, *arguments: object, **variables: str) -> Iterator[CloudPort]:
    """A server that is ready, by its port for Vertex AI."""
    with serving(log, *VERTEX_AI, *arguments, env=environment(ROUTES | variables)) as running:
        yield cloud_port(running, "Vertex AI")
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


def loaded(response: HttpResponse) -> Any:
    """The JSON of a response that must be a success."""
    assert response.status == 200, response.body
    return json.loads(response.body)
