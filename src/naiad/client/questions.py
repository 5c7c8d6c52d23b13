"""Requests beside inference, as both clients send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from naiad.client.encode import model_path
from naiad.client.response import WholeResponse
from naiad.tensor.dtypes import BY_WIRE, DataType


class PlainRequest(NamedTuple):
    """A request with a JSON body, or with none."""

    method: str
    path: str
    body: bytes = b""


LIVE = PlainRequest("GET", "/v2/health/live")
READY = PlainRequest("GET", "/v2/health/ready")
SERVER = PlainRequest("GET", "/v2")


def model_ready(model: str, version: str) -> PlainRequest:
    """Whether a model is ready."""
    return PlainRequest("GET", f"{model_path(model, version)}/ready")


def metadata(model: str, version: str) -> PlainRequest:
    """The inputs and outputs of a model."""
    return PlainRequest("GET", model_path(model, version))


def config(model: str, version: str) -> PlainRequest:
    """The configuration of a model."""
    return PlainRequest("GET", f"{model_path(model, version)}/config")


def statistics(model: str, version: str) -> PlainRequest:
    """The counters of a model, or with "" of all."""
    return PlainRequest("GET", f"{model_path(model, version)}/stats" if model else "/v2/models/stats")


def index(ready_only: bool) -> PlainRequest:
    """The models of the repositories."""
    return PlainRequest("POST", "/v2/repository/index", orjson.dumps({"ready": ready_only}))


def load(model: str, config: str | None) -> PlainRequest:
    """Load a model."""
    body = {} if config is None else {"parameters": {"config": config}}
    return PlainRequest("POST", f"/v2/repository{model_path(model).removeprefix('/v2')}/load", orjson.dumps(body))


def unload(model: str, unload_dependents: bool) -> PlainRequest:
    """Unload a model."""
    body = {"parameters": {"unload_dependents": unload_dependents}}
    return PlainRequest("POST", f"/v2/repository{model_path(model).removeprefix('/v2')}/unload", orjson.dumps(body))


def read_json(response: WholeResponse) -> Any:
    """The body of a response; None for an empty one."""
    return orjson.loads(response.body) if response.body else None


def input_datatypes(found: Mapping[str, Any]) -> dict[str, DataType]:
    """The datatypes of the inputs, from the metadata of a model."""
    return {entry["name"]: BY_WIRE[entry["datatype"]] for entry in found["inputs"]}


def has_lists(inputs: Mapping[str, Any]) -> bool:
    """Whether an input has no datatype of its own."""
    return any(not hasattr(value, "dtype") for value in inputs.values())


def is_repeatable(parameters: Mapping[str, Any]) -> bool:
    """Whether a model may run a request twice: a sequence would count it twice."""
    return "sequence_id" not in parameters
