"""Addresses, and waits on clients of ``naiad.client``."""

from __future__ import annotations

from enum import Enum

from naiad.client.sync import TIMEOUT_S, Client
from naiad.pytriton.client.base import DEFAULT_INIT_TIMEOUT_S
from naiad.pytriton.client.exceptions import PyTritonClientModelUnavailableError
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


def wait_for_server_ready(client: Client, timeout_s: float | None = None) -> None:
    """Wait until the server is ready; 60 s by default.

    Raises:
        PyTritonClientTimeoutError: not in time.
    """
    wait_for_server(client, TIMEOUT_S if timeout_s is None else timeout_s)


def wait_for_model_ready(
    client: Client, model_name: str, model_version: str | None = None, timeout_s: float | None = None
) -> None:
    """Wait until the server and a model are ready; 300 s by default. Errors as ``wait_for_server_ready``."""
    wait_for_model(client, model_name, model_version, DEFAULT_INIT_TIMEOUT_S if timeout_s is None else timeout_s)


def get_model_config(
    client: Client, model_name: str, model_version: str | None = None, timeout_s: float | None = None
) -> TritonModelConfig:
    """The configuration of a model, which is waited for; errors as ``wait_for_model_ready``."""
    wait_for_model_ready(client, model_name, model_version, timeout_s)
    return ModelConfigParser.from_dict(client.config(model_name, model_version or ""))


def get_model_state(client: Client, model_name: str, model_version: str | None = None) -> ModelState:
    """The state of a model, None for its newest version.

    Raises:
        PyTritonClientModelUnavailableError: the server says a state that is none of ``ModelState``.
    """
    found = {row["version"]: row.get("state", "") for row in client.index() if row["name"] == model_name}
    known = {version: state for version, state in found.items() if version.isdigit()}
    version = max(known, key=int, default="") if model_version is None else model_version
    state = known.get(version, "UNAVAILABLE") or "LOADING"
    if state not in ModelState.__members__:
        raise PyTritonClientModelUnavailableError(f"model {model_name}/{version} is in the state {state}")
    return ModelState(state)
