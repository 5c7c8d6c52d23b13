"""Loads and unloads over HTTP that may take longer than other requests: a framework is imported for seconds."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Final

from naiad.testing import RunningServer

LOAD_S: Final = 100.0
"""The longest load, in seconds."""


def load_error(server: RunningServer, model: str) -> str:
    """Load a model; "" or why it does not load."""
    return _post(server, f"/v2/repository/models/{model}/load")


def unload(server: RunningServer, model: str) -> None:
    """Unload a model."""
    assert _post(server, f"/v2/repository/models/{model}/unload") == ""


def _post(server: RunningServer, path: str) -> str:
    request = urllib.request.Request(f"http://{server.host}:{server.http}{path}", b"{}")
    try:
        with urllib.request.urlopen(request, timeout=LOAD_S):
            return ""
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
