"""A port of a server beside those of the v2 protocol, and requests to it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from naiad.testing import HttpResponse, RunningServer


@dataclass(frozen=True, slots=True)
class ServerPort:
    """One port of a server that runs."""

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


def server_port(server: RunningServer, name: str) -> ServerPort:
    """The port that the log calls the ``HTTPService`` of ``name``, such as ``Sagemaker`` or ``OpenAI``."""
    found = re.search(rf"Started {name} HTTPService at 127\.0\.0\.1:(\d+)\b", server.log)
    assert found is not None, server.log
    return ServerPort(server, int(found[1]))


def loaded(response: HttpResponse) -> Any:
    """The JSON of a response that must be a success."""
    assert response.status == 200, response.body
    return json.loads(response.body)
