"""``/v2/systemsharedmemory`` and ``/v2/cudasharedmemory``: status, register and unregister."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Any, Final

from naiad.engine.engine import Engine
from naiad.errors import InvalidArgumentError, MalformedRequestError, NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import JSON, send_error, send_json
from naiad.frontends.http.v2.small_body import read_settings
from naiad.frontends.inference.shared_memory_admin import register_cuda
from naiad.wire.json_text import kind_of

_ESCAPED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_LARGEST: Final = 2**64 - 1
_LARGEST_DEVICE: Final = 2**31 - 1


def system_status(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler of the system shared memory that is registered, or of one region."""

    def regions() -> list[dict[str, Any]]:
        found = engine.regions.system(_name(region))
        return [{"name": r.name, "key": r.key, "offset": r.start, "byte_size": r.byte_size} for r in found]

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            send_json(exchange, regions())
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def cuda_status(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler of the CUDA shared memory that is registered, or of one region."""

    def regions() -> list[dict[str, Any]]:
        found = engine.regions.cuda(_name(region))
        return [{"name": r.name, "device_id": r.device_id, "byte_size": r.byte_size} for r in found]

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            send_json(exchange, regions())
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def register_system_region(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler that registers a part of a POSIX shared memory object."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            engine.regions.check_allowed()
            given = read_settings(body)
            key = _field(given, "key")
            if not isinstance(key, str):
                raise MalformedRequestError(f"Unable to parse 'key': expected a string, found {kind_of(key)}")
            offset = _number("offset", given["offset"]) if "offset" in given else 0
            size = _number("byte_size", _field(given, "byte_size"))
            engine.regions.register_system(_name(region), key, offset, size)
            _done(exchange, None)
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def register_cuda_region(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler that registers memory of a device."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            engine.regions.check_allowed()
            given = read_settings(body)
            handle = _handle(_field(given, "raw_handle"))
            device = _number("device_id", _field(given, "device_id"), _LARGEST_DEVICE)
            size = _number("byte_size", _field(given, "byte_size"))
            register_cuda(engine, _name(region), handle, device, size, lambda error: _done(exchange, error))
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def unregister_system_region(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler that unregisters a region of system shared memory, or all."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            engine.regions.unregister_system(_name(region))
            _done(exchange, None)
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def unregister_cuda_region(engine: Engine, region: str, version: str | None) -> Handler:
    """Handler that unregisters a region of CUDA shared memory, or all."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            engine.regions.unregister_cuda(_name(region))
            _done(exchange, None)
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def _done(exchange: Exchange, error: NaiadError | None) -> None:
    if error is not None:
        send_error(exchange, error)
    else:
        exchange.send_status(200, JSON, b"")


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
