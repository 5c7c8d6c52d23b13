"""Loading and unloading models over the API while a server is measured."""

from __future__ import annotations

import time

from .figures import CaseError
from .infer import Request, ask
from .servers import Server

EXPLICIT = "--model-control-mode=explicit"
UNLOAD_SECONDS = 60.0
LOOK_SECONDS = 0.02


def try_load(server: Server, model: str) -> tuple[bool, str]:
    """Load a model as its files are now; whether that worked, and the answer's text."""
    status, _, body = ask(server.port, Request(f"/v2/repository/models/{model}/load", {}, b"{}"))
    return status == 200, body.decode(errors="replace")


def load(server: Server, model: str) -> None:
    """Load a model.

    Raises:
        CaseError: it could not be loaded.
    """
    is_loaded, text = try_load(server, model)
    if not is_loaded:
        raise CaseError(f"model '{model}' could not be loaded: {text[:500]}")


def unload(server: Server, model: str) -> None:
    """Unload a model and wait until nothing of it is left.

    Raises:
        CaseError: that took too long.
    """
    ask(server.port, Request(f"/v2/repository/models/{model}/unload", {}, b"{}"))
    deadline = time.monotonic() + UNLOAD_SECONDS
    while b'"UNLOADING"' in ask(server.port, Request("/v2/repository/index", {}, b"{}"))[2]:
        if time.monotonic() > deadline:
            raise CaseError(f"model '{model}' was not unloaded within {UNLOAD_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)
