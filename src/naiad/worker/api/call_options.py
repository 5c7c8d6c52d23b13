"""What a request of another model says beside its inputs."""

from __future__ import annotations

import json
import time
from enum import IntEnum
from operator import index
from typing import Any

from ..ipc.errors import TritonModelException
from ..ipc.schemas import CorrelationId
from .control import notify


class MemoryType(IntEnum):
    """Where output tensors may lie."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU


class PreferredMemory:
    """Where the outputs of a call should lie. Accepted without effect: they always lie in the processor's memory."""

    __slots__ = ("_device_id", "_type")

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        self._type = MemoryType(preferred_memory_type)
        self._device_id = int(preferred_device_id)


class InferenceTrace:
    """The trace that a request belongs to. Given to a request of another model, it makes that one part of the trace."""

    __slots__ = ("_context", "_parent")

    def __init__(self) -> None:
        self._context: str | None = None
        self._parent = 0

    def get_context(self) -> str | None:
        """The context for OpenTelemetry as JSON, None without one."""
        # "" means traced, but to a file: that has no context to pass on.
        return self._context or None

    def report_activity(self, name: str, at_ns: int | None = None) -> None:
        """Add a point of time to the trace; ``X_START`` and ``X_END`` together are a span ``X`` for OpenTelemetry.

        Nothing happens for a request that is not traced. ``at_ns`` is of ``time.monotonic_ns``, by default now.

        Raises:
            TritonModelException: the name is empty, or no text.
        """
        if not isinstance(name, str) or not name:
            raise TritonModelException(f"report_activity: the name of an activity must be a text, found {name!r}")
        if self._context is not None:
            at_ns = time.monotonic_ns() if at_ns is None else index(at_ns)
            notify("trace_activity", request=self._parent, name=name, at_ns=at_ns)


class BlsCallOptions:
    """What a request of another model says beside its inputs."""

    __slots__ = (
        "correlation_id",
        "model_name",
        "model_version",
        "outputs",
        "parameters_json",
        "preferred_memory",
        "timeout_us",
        "trace",
    )

    def __init__(
        self,
        model_name: str,
        model_version: int,
        outputs: tuple[str, ...],
        parameters_json: str,
        correlation_id: CorrelationId,
        timeout_us: int,
        preferred_memory: PreferredMemory,
        trace: InferenceTrace,
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self.outputs = outputs
        self.parameters_json = parameters_json
        self.correlation_id = correlation_id
        self.timeout_us = timeout_us
        self.preferred_memory = preferred_memory
        self.trace = trace

    def as_schema(self, flags: int, decoupled: bool) -> dict[str, Any]:
        """The call's schema without the inputs."""
        return {
            "outputs": list(self.outputs),
            "parameters": json.loads(self.parameters_json),
            "timeout_us": self.timeout_us,
            "flags": flags,
            "correlation_id": self.correlation_id,
            "trace": self.trace._context or None,
            "decoupled": decoupled,
        }

    def as_head(self, request_id: str, decoupled: bool) -> dict[str, Any]:
        """The head of the ``CALL`` frame."""
        return {
            "model": self.model_name,
            "version": self.model_version,
            "id": request_id,
            "decoupled": decoupled,
            "timeout_us": self.timeout_us,
            "parent": self.trace._parent,
        }
