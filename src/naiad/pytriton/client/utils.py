"""Addresses, and waits on clients: those of ``naiad.client`` and of tritonclient."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from naiad.client.sync import TIMEOUT_S, Client
from naiad.pytriton.client.base import DEFAULT_INIT_TIMEOUT_S
from naiad.pytriton.client.exceptions import PyTritonClientModelUnavailableError
from naiad.pytriton.client.tritonclient_view import questions_of
from naiad.pytriton.client.url import TritonUrl
from naiad.pytriton.client.waiting import LATEST_MODEL_VERSION, wait_for_model, wait_for_server
from naiad.pytriton.model_config.parser import ModelConfigParser
from naiad.pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "LATEST_MODEL_VERSION",
    "ModelState",
    "TritonUrl",
    "create_client_from_url",
    "get_model_config",
    "get_model_state",
    "wait_for_model_ready",
    "wait_for_server_ready",
]


AnyClient = Any
"""``naiad.client.Client``, or the ``InferenceServerClient`` of tritonclient over HTTP or gRPC."""
Headers = Mapping[str, str]


class ModelState(Enum):
    """The state of a model on the server."""

    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"
    READY = "READY"


def create_client_from_url(url: str, network_timeout_s: float | None = None) -> Client:
    """A client of a server, for the functions here.

    Raises:
        PyTritonClientInvalidUrlError: the address is none.
    """
    return Client(TritonUrl.from_url(url).with_scheme, timeout_s=network_timeout_s or TIMEOUT_S)


def wait_for_server_ready(client: AnyClient, timeout_s: float | None = None, headers: Headers | None = None) -> None:
    """Wait until the server is ready; 60 s by default.

    Args:
        headers: of each request, such as those of ``create_auth_headers``.

    Raises:
        PyTritonClientTimeoutError: not in time.
    """
    wait_for_server(questions_of(client, headers), TIMEOUT_S if timeout_s is None else timeout_s)


def wait_for_model_ready(
    client: AnyClient,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float | None = None,
    headers: Headers | None = None,
) -> None:
    """Wait until the server and a model are ready; 300 s by default. Errors as ``wait_for_server_ready``."""
    limit_s = DEFAULT_INIT_TIMEOUT_S if timeout_s is None else timeout_s
    wait_for_model(questions_of(client, headers), model_name, model_version, limit_s)


def get_model_config(
    client: AnyClient,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float | None = None,
    headers: Headers | None = None,
) -> TritonModelConfig:
    """The configuration of a model, which is waited for; errors as ``wait_for_model_ready``."""
    wait_for_model_ready(client, model_name, model_version, timeout_s, headers)
    return ModelConfigParser.from_dict(questions_of(client, headers).config(model_name, model_version or ""))


def get_model_state(
    client: AnyClient, model_name: str, model_version: str | None = None, headers: Headers | None = None
) -> ModelState:
    """The state of a model, None for its newest version.

    Raises:
        PyTritonClientModelUnavailableError: the server says a state that is none of ``ModelState``.
    """
    rows = questions_of(client, headers).index()
    found = {row["version"]: row.get("state", "") for row in rows if row["name"] == model_name}
    known = {version: state for version, state in found.items() if version.isdigit()}
    version = max(known, key=int, default="") if model_version is None else model_version
    state = known.get(version, "UNAVAILABLE") or "LOADING"
    if state not in ModelState.__members__:
        raise PyTritonClientModelUnavailableError(f"model {model_name}/{version} is in the state {state}")
    return ModelState(state)
