"""``/v2/systemsharedmemory`` and ``/v2/cudasharedmemory``: status, register and unregister."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final

from naiad.engine.engine import Engine
from naiad.errors import InvalidArgumentError, MalformedRequestError
from naiad.frontends.http.server.exchange import Body, Handler
from naiad.frontends.http.v2.simple_handlers import Done, action_handler, json_handler
from naiad.frontends.http.v2.small_body import read_settings
from naiad.frontends.inference.shared_memory_admin import register_cuda
from naiad.wire.json_text import kind_of

_ESCAPED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_LARGEST: Final = 2**64 - 1
_LARGEST_DEVICE: Final = 2**31 - 1


def system_status(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler of the system shared memory that is registered, or of one region."""

    def regions(body: Body) -> list[dict[str, Any]]:
        found = engine.regions.system(_name(region))
        return [{"name": r.name, "key": r.key, "offset": r.start, "byte_size": r.byte_size} for r in found]

    return json_handler(regions)


def cuda_status(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler of the CUDA shared memory that is registered, or of one region."""

    def regions(body: Body) -> list[dict[str, Any]]:
        found = engine.regions.cuda(_name(region))
        return [{"name": r.name, "device_id": r.device_id, "byte_size": r.byte_size} for r in found]

    return json_handler(regions)


def register_system_region(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler that registers a part of a POSIX shared memory object."""

    def register(body: Body, done: Done) -> None:
        given = _settings(engine, body, "system", region)
        key = _field(given, "key")
        if not isinstance(key, str):
            raise MalformedRequestError(f"Unable to parse 'key': expected a string, found {kind_of(key)}")
        offset = _number("offset", given["offset"]) if "offset" in given else 0
        size = _number("byte_size", _field(given, "byte_size"))
        engine.regions.register_system(_name(region), key, offset, size)
        done(None)

    return action_handler(register)


def register_cuda_region(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler that registers memory of a device."""

    def register(body: Body, done: Done) -> None:
        given = _settings(engine, body, "cuda", region)
        handle = _handle(_field(given, "raw_handle"))
        device = _number("device_id", _field(given, "device_id"), _LARGEST_DEVICE)
        size = _number("byte_size", _field(given, "byte_size"))
        register_cuda(engine, _name(region), handle, device, size, done)

    return action_handler(register)


def unregister_system_region(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler that unregisters a region of system shared memory, or all."""
    return _unregister_handler(engine.regions.unregister_system, region)


def unregister_cuda_region(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler that unregisters a region of CUDA shared memory, or all."""
    return _unregister_handler(engine.regions.unregister_cuda, region)


def _unregister_handler(unregister: Callable[[str], None], region: str) -> Handler:
    def start(body: Body, done: Done) -> None:
        unregister(_name(region))
        done(None)

    return action_handler(start)


def _settings(engine: Engine, body: Body, kind: str, region: str) -> dict[str, Any]:
    """The settings of a registration; errors as ``check_allowed`` and ``read_settings``.

    Raises:
        InvalidArgumentError: the path names no region.
    """
    engine.regions.check_allowed()
    if not region:
        raise InvalidArgumentError(f"'region name' is necessary to register {kind} shared memory region")
    return read_settings(body)


def _name(region: str) -> str:
    """The name in a path without its escapes, which clients write in paths only."""
    raw = _ESCAPED.sub(lambda found: bytes((int(found[1], 16),)), region.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "replace")


def _field(given: dict[str, Any], name: str) -> Any:
    if name not in given:
        raise MalformedRequestError(f"Shared memory register request has no '{name}' field")
    return given[name]


def _number(name: str, value: Any, largest: int = _LARGEST) -> int:
    # Not isinstance: bool is an int too.
    if type(value) is not int or not 0 <= value <= largest:
        raise MalformedRequestError(
            f"Unable to parse '{name}': expected an unsigned integer up to {largest}, found {kind_of(value)}"
        )
    return value


def _handle(given: Any) -> bytes:
    text = given.get("b64") if isinstance(given, dict) else None
    if not isinstance(text, str):
        raise MalformedRequestError("Unable to parse 'raw_handle': expected an object whose 'b64' is a string")
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgumentError("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t") from None
