"""Requests beside inference, as both clients send them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import orjson

from naiad.client.encode import model_path
from naiad.client.protocol import PlainRequest
from naiad.tensor.dtypes import BY_WIRE, DataType

LIVE = PlainRequest("GET", "/v2/health/live", b"", "ServerLive", {}, "live")
READY = PlainRequest("GET", "/v2/health/ready", b"", "ServerReady", {}, "ready")
SERVER = PlainRequest("GET", "/v2", b"", "ServerMetadata")


def model_ready(model: str, version: str) -> PlainRequest:
    """Whether a model is ready."""
    path = f"{model_path(model, version)}/ready"
    return PlainRequest("GET", path, b"", "ModelReady", {"name": model, "version": version}, "ready")


def metadata(model: str, version: str) -> PlainRequest:
    """The inputs and outputs of a model."""
    return PlainRequest("GET", model_path(model, version), b"", "ModelMetadata", {"name": model, "version": version})


def config(model: str, version: str) -> PlainRequest:
    """The configuration of a model."""
    path = f"{model_path(model, version)}/config"
    return PlainRequest("GET", path, b"", "ModelConfig", {"name": model, "version": version})


def statistics(model: str, version: str) -> PlainRequest:
    """The counters of a model, or with "" of all."""
    path = f"{model_path(model, version)}/stats" if model else "/v2/models/stats"
    return PlainRequest("GET", path, b"", "ModelStatistics", {"name": model, "version": version})


def index(ready_only: bool) -> PlainRequest:
    """The models of the repositories."""
    body = orjson.dumps({"ready": ready_only})
    return PlainRequest("POST", "/v2/repository/index", body, "RepositoryIndex", {"ready": ready_only})


def load(model: str, config: str | None, files: Mapping[str, bytes]) -> PlainRequest:
    """Load a model."""
    named = {f"file:{path}": content for path, content in files.items()}
    over_http: dict[str, Any] = {name: base64.b64encode(content).decode() for name, content in named.items()}
    over_grpc: dict[str, Any] = {name: {"bytes_param": content} for name, content in named.items()}
    if config is not None:
        over_http["config"], over_grpc["config"] = config, {"string_param": config}
    body = {"parameters": over_http} if over_http else {}
    path = f"/v2/repository{model_path(model).removeprefix('/v2')}/load"
    fields = {"model_name": model, "parameters": over_grpc}
    return PlainRequest("POST", path, orjson.dumps(body), "RepositoryModelLoad", fields)


def unload(model: str, unload_dependents: bool) -> PlainRequest:
    """Unload a model."""
    body = {"parameters": {"unload_dependents": unload_dependents}}
    path = f"/v2/repository{model_path(model).removeprefix('/v2')}/unload"
    fields = {"model_name": model, "parameters": {"unload_dependents": {"bool_param": unload_dependents}}}
    return PlainRequest("POST", path, orjson.dumps(body), "RepositoryModelUnload", fields)


def register_region(name: str, key: str, byte_size: int) -> PlainRequest:
    """Register a whole POSIX shared memory object."""
    path = f"/v2/systemsharedmemory/region/{quote(name, safe='')}/register"
    body = orjson.dumps({"key": key, "offset": 0, "byte_size": byte_size})
    fields = {"name": name, "key": key, "byte_size": byte_size}
    return PlainRequest("POST", path, body, "SystemSharedMemoryRegister", fields)


def unregister_region(name: str) -> PlainRequest:
    """Take the name of a region back."""
    path = f"/v2/systemsharedmemory/region/{quote(name, safe='')}/unregister"
    return PlainRequest("POST", path, b"", "SystemSharedMemoryUnregister", {"name": name})


REGIONS = PlainRequest("GET", "/v2/systemsharedmemory/status", b"", "SystemSharedMemoryStatus")


def region_names(found: Any) -> list[str]:
    """The names of the regions that a server has, from what it says of them."""
    # HTTP gives a list, gRPC a map by name.
    return list(found.get("regions", {})) if isinstance(found, Mapping) else [entry["name"] for entry in found or ()]


def routes(model: str) -> PlainRequest:
    """Aliases, split and shadow of a model."""
    return PlainRequest("GET", f"{model_path(model)}/routes")


def change_routes(model: str, change: Mapping[str, Any]) -> PlainRequest:
    """Change the routes of a model."""
    return PlainRequest("POST", f"{model_path(model)}/routes", orjson.dumps(change))


def promote(model: str, version: str, alias: str) -> PlainRequest:
    """Give all requests to one version."""
    body = {name: value for name, value in (("version", version), ("alias", alias)) if value}
    return PlainRequest("POST", f"{model_path(model)}/routes/promote", orjson.dumps(body))


def rollback(model: str) -> PlainRequest:
    """Go back to the routes before the last change."""
    return PlainRequest("POST", f"{model_path(model)}/routes/rollback")


def input_datatypes(found: Mapping[str, Any]) -> dict[str, DataType]:
    """The datatypes of the inputs, from the metadata of a model."""
    return {entry["name"]: BY_WIRE[entry["datatype"]] for entry in found["inputs"]}


def has_lists(inputs: Mapping[str, Any]) -> bool:
    """Whether an input has no datatype of its own."""
    return any(not hasattr(value, "dtype") for value in inputs.values())


def is_repeatable(parameters: Mapping[str, Any]) -> bool:
    """Whether a model may run a request twice: a sequence would count it twice."""
    return "sequence_id" not in parameters
