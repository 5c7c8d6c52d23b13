"""``TritonConfig``: the options of the server under the names of PyTriton."""

from __future__ import annotations

import logging
import os
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

from naiad.pytriton.exceptions import PyTritonValidationError

logger = logging.getLogger("naiad")

PREFIX: Final = "PYTRITON_TRITON_CONFIG_"
_LIST_ITEM: Final = re.compile(r"(.+)_(\d+)")


@dataclass(kw_only=True)
class TritonConfig:
    """Options of the server: those of ``naiad serve`` with ``_`` in place of ``-``. None is the server's default.

    ``docs/options.md`` says what each does.
    """

    model_repository: Path | None = None
    id: str | None = None
    log_verbose: int | None = None
    log_file: Path | None = None
    exit_timeout_secs: int | None = None
    exit_on_error: bool | None = None
    strict_readiness: bool | None = None
    allow_http: bool | None = None
    http_address: str | None = None
    http_port: int | None = None
    http_header_forward_pattern: str | None = None
    http_thread_count: int | None = None
    http_restricted_api: str | None = None
    allow_grpc: bool | None = None
    grpc_address: str | None = None
    grpc_port: int | None = None
    grpc_header_forward_pattern: str | None = None
    grpc_infer_allocation_pool_size: int | None = None
    grpc_use_ssl: bool | None = None
    grpc_use_ssl_mutual: bool | None = None
    grpc_server_cert: Path | None = None
    grpc_server_key: Path | None = None
    grpc_root_cert: Path | None = None
    grpc_infer_response_compression_level: str | None = None
    grpc_keepalive_time: int | None = None
    grpc_keepalive_timeout: int | None = None
    grpc_keepalive_permit_without_calls: bool | None = None
    grpc_http2_max_pings_without_data: int | None = None
    grpc_http2_min_recv_ping_interval_without_data: int | None = None
    grpc_http2_max_ping_strikes: int | None = None
    grpc_restricted_protocol: str | None = None
    allow_metrics: bool | None = None
    allow_gpu_metrics: bool | None = None
    allow_cpu_metrics: bool | None = None
    metrics_interval_ms: int | None = None
    metrics_port: int | None = None
    metrics_address: str | None = None
    allow_sagemaker: bool | None = None
    sagemaker_port: int | None = None
    sagemaker_safe_port_range: str | None = None
    sagemaker_thread_count: int | None = None
    allow_vertex_ai: bool | None = None
    vertex_ai_port: int | None = None
    vertex_ai_thread_count: int | None = None
    vertex_ai_default_model: str | None = None
    metrics_config: list[str] | None = None
    trace_config: list[str] | None = None
    cache_config: list[str] | None = None
    cache_directory: str | None = None
    buffer_manager_thread_count: int | None = None

    def __post_init__(self) -> None:
        """Check that a client can reach the server."""
        if self.allow_http is False and self.allow_grpc is False:
            raise PyTritonValidationError("The `http` or `grpc` endpoint has to be allowed.")

    def to_dict(self) -> dict[str, Any]:
        """The options by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> Self:
        """Options from texts or values; unknown ones are logged and left out.

        Raises:
            PyTritonValidationError: a value has the wrong type.
        """
        kinds = typing.get_type_hints(cls)
        if unknown := [name for name in config if name not in kinds]:
            known = ", ".join(field.name for field in fields(cls))
            logger.warning("TritonConfig has no option %s: it is left out. There are: %s", ", ".join(unknown), known)
        return cls(**{n: _value(n, kinds[n], v) for n, v in config.items() if n in kinds and v is not None})

    @classmethod
    def from_env(cls) -> Self:
        """Options from environment variables: ``PYTRITON_TRITON_CONFIG_HTTP_PORT``, or ``..._TRACE_CONFIG_0`` and so on
        for the items of a list."""
        found: dict[str, Any] = {}
        lists: dict[str, dict[int, str]] = {}
        for variable, value in os.environ.items():
            if variable.startswith(PREFIX):
                name = variable.removeprefix(PREFIX).lower()
                if item := _LIST_ITEM.fullmatch(name):
                    lists.setdefault(item[1], {})[int(item[2])] = value
                else:
                    found[name] = value
        return cls.from_dict(found | {name: [v for _, v in sorted(items.items())] for name, items in lists.items()})


def _value(name: str, hint: Any, value: Any) -> Any:
    (kind,) = [k for k in typing.get_args(hint) if k is not types.NoneType]
    if typing.get_origin(kind) is list:
        return value.split(",") if isinstance(value, str) else list(value)
    if kind is bool and isinstance(value, str):
        # bool("false") would be true.
        words = {"true": True, "1": True, "false": False, "0": False}
        if value.lower() not in words:
            raise PyTritonValidationError(f"TritonConfig: found {name}={value!r}, expected true or false")
        return words[value.lower()]
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise PyTritonValidationError(f"TritonConfig: found {name}={value!r}, expected {kind.__name__}") from None


def merged(*configs: TritonConfig) -> TritonConfig:
    """One configuration out of several: the last one that says something counts."""
    given: dict[str, Any] = {}
    for config in configs:
        given |= {name: value for name, value in config.to_dict().items() if value is not None}
    return TritonConfig(**given)
