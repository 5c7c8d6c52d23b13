"""How regions of shared memory are registered with a server: the protocol's shared memory extensions.

Source: the protocol's "System Shared Memory Extension" and "CUDA Shared Memory Extension".
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote

import orjson

from naiad.wire.proto_fields import field, varint


class RegionCalls(Protocol):
    """Calls of one server. Each raises ``TargetError`` when the server refuses it."""

    def register_system(self, name: str, key: str, byte_size: int) -> None:
        """Register a whole POSIX shared memory object."""
        ...

    def register_cuda(self, name: str, handle: bytes, device: int, byte_size: int) -> None:
        """Register an allocation on a device by its ``cudaIpcMemHandle_t``."""
        ...

    def unregister(self, kind: str, name: str) -> None:
        """Take a name back; ``kind`` is system or cuda."""
        ...


class HttpRegionCalls:
    """The calls over HTTP.

    Args:
        post: sends a body to a path, which begins with ``/v2``.
    """

    def __init__(self, post: Callable[[str, bytes], object]) -> None:
        self._post = post

    def register_system(self, name: str, key: str, byte_size: int) -> None:
        """Register a whole POSIX shared memory object."""
        self._call("system", name, "register", {"key": key, "offset": 0, "byte_size": byte_size})

    def register_cuda(self, name: str, handle: bytes, device: int, byte_size: int) -> None:
        """Register an allocation on a device."""
        raw = {"b64": base64.b64encode(handle).decode()}
        self._call("cuda", name, "register", {"raw_handle": raw, "device_id": device, "byte_size": byte_size})

    def unregister(self, kind: str, name: str) -> None:
        """Take a name back."""
        self._call(kind, name, "unregister", {})

    def _call(self, kind: str, name: str, action: str, body: dict[str, Any]) -> None:
        self._post(f"/v2/{kind}sharedmemory/region/{quote(name, safe='')}/{action}", orjson.dumps(body))


class GrpcRegionCalls:
    """The calls over gRPC.

    Args:
        call: calls a method of the inference service with the message of a request.
    """

    def __init__(self, call: Callable[[str, bytes], object]) -> None:
        self._call = call

    def register_system(self, name: str, key: str, byte_size: int) -> None:
        """Register a whole POSIX shared memory object."""
        self._call(
            "SystemSharedMemoryRegister", field(1, name.encode()) + field(2, key.encode()) + _number(4, byte_size)
        )

    def register_cuda(self, name: str, handle: bytes, device: int, byte_size: int) -> None:
        """Register an allocation on a device."""
        message = field(1, name.encode()) + field(2, handle) + _number(3, device) + _number(4, byte_size)
        self._call("CudaSharedMemoryRegister", message)

    def unregister(self, kind: str, name: str) -> None:
        """Take a name back."""
        self._call(f"{kind.capitalize()}SharedMemoryUnregister", field(1, name.encode()))


def _number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)
