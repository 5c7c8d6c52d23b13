"""The worker for large JSON, started as ``python -m naiad.frontends.http.json_worker.program DESCRIPTOR``.

It turns requests with their data in JSON into the same requests with binary data, and outputs into the JSON of a
response. Both directions use frames: ``u32 kind, u32 bytes of the first part, u64 bytes of all``, then the content.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import sys
import traceback
from typing import Any, Final

import numpy as np
import orjson

from naiad.errors import InternalError, InvalidArgumentError, NaiadError
from naiad.request import Outputs
from naiad.shared_memory.tensor_ref import PlacedOutput, as_array
from naiad.tensor.bytes_codec import Raw, decode_bytes
from naiad.tensor.dtypes import BY_WIRE, DataType
from naiad.tensor.packed_bytes import PackedStrings
from naiad.wire.json_text import dump_json, load_json
from naiad.wire.v2.base64_text import decode_base64
from naiad.wire.v2.generate import encode_generated
from naiad.wire.v2.generate_packed import pack_generate
from naiad.wire.v2.header import (
    ENCODING,
    InferHeader,
    InputHeader,
    check_description,
    header_of,
)
from naiad.wire.v2.json import decode_data
from naiad.wire.v2.region_parameters import REGION, REGION_OFFSET, REGION_SIZE
from naiad.wire.v2.response import OutputPart, encode_response, tensor_bytes

FRAME: Final = struct.Struct("<IIQ")
READ, READ_JSON_ALONE, WRITE, DONE, FAILED, GENERATE, WRITE_FLAT = range(7)
"""Kinds. ``READ``: a body, whose first part is JSON; ``READ_JSON_ALONE``: one that is JSON as a whole. ``WRITE``: a
description of outputs, then their bytes; ``WRITE_FLAT``: the same for ``generate``. ``GENERATE``: the inputs of a
model, then a request to ``generate``, as ``wire/v2/generate_packed.py`` defines them. ``DONE``: a body, or the JSON of
a response. ``FAILED``: a JSON object with ``error``, a class of ``naiad.errors``, and ``message``."""
ALIGNMENT: Final = 64
_OF_INPUTS: Final = frozenset(("name", "shape", "datatype"))
_OF_OUTPUTS: Final = frozenset(("name",))
_REGIONS: Final = frozenset((REGION, REGION_OFFSET, REGION_SIZE))
_ABOUT_INPUTS: Final = _REGIONS | {"binary_data_size"}
_ABOUT_OUTPUTS: Final = _REGIONS | {"binary_data", "classification", ENCODING}

Parts = list[Raw]


def to_binary(body: memoryview, json_bytes: int, is_alone: bool) -> Parts:
    """A request with all its inputs as binary data: its JSON part, then its tensors.

    Raises:
        NaiadError: the body is no inference request.
    """
    root = load_json(body[:json_bytes])
    header = header_of(root)
    if is_alone:
        _check_no_binary(header)
    tensors: Parts = []
    at = json_bytes
    for entry, given in zip(root["inputs"], header.inputs, strict=True):
        if given.binary_size is not None:
            tensors.append(body[at : at + given.binary_size])
            at += given.binary_size
            continue
        if given.region is not None:
            continue
        raw = _raw_of(given)
        parameters = entry.get("parameters")
        entry["parameters"] = {**(parameters if isinstance(parameters, dict) else {}), "binary_data_size": len(raw)}
        tensors.append(raw)
    # Bytes behind the last tensor are passed on: the server refuses them when it reads the result.
    described = dump_json(_without_others(root))
    check_description(len(described))
    # JSON allows spaces at the end: they align the tensors, which become views.
    return [described + b" " * (-len(described) % ALIGNMENT), *tensors, body[at:]]


def _raw_of(given: InputHeader) -> Raw:
    """An input whose data are in the JSON, as binary data."""
    return tensor_bytes(decode_data(given), given.dtype) if given.base64 is None else decode_base64(given)


def _without_others(root: dict[str, Any]) -> dict[str, Any]:
    """The request without data and unknown members: the loop reads the result, and must not parse these again."""
    kept: dict[str, Any] = {name: root[name] for name in ("id", "parameters") if name in root}
    kept["inputs"] = [_only(entry, _OF_INPUTS, _ABOUT_INPUTS) for entry in root["inputs"]]
    if "outputs" in root:
        kept["outputs"] = [_only(entry, _OF_OUTPUTS, _ABOUT_OUTPUTS) for entry in root["outputs"]]
    return kept


def _only(entry: dict[str, Any], members: frozenset[str], about: frozenset[str]) -> dict[str, Any]:
    """An input or an output reduced to these ``members``, and to the parameters in ``about``."""
    kept = {name: value for name, value in entry.items() if name in members}
    parameters = entry.get("parameters")
    if isinstance(parameters, dict):
        kept["parameters"] = {name: value for name, value in parameters.items() if name in about}
    return kept


def _check_no_binary(header: InferHeader) -> None:
    """Refuse sizes of binary data in a body that is JSON alone."""
    for given in header.inputs:
        if given.binary_size:
            raise InvalidArgumentError(
                f"unexpected size for input '{given.name}', expecting {given.binary_size} additional bytes"
            )


def to_json(description: bytes | memoryview, data: memoryview, is_flat: bool = False) -> bytes:
    """The JSON part of a response, or with ``is_flat`` a response to ``generate``.

    Raises:
        NaiadError: an output cannot travel in JSON.
    """
    # Not orjson, which refuses NaN among the parameters.
    told = json.loads(bytes(description))
    parts: list[OutputPart] = []
    at = 0
    for name, wire, shape, is_binary, is_placed, is_base64, size in told["outputs"]:
        dtype = BY_WIRE[wire]
        if is_placed:
            # The data lie in a region of the client; the response only describes them.
            array = as_array(PlacedOutput(dtype.numpy, tuple(shape)))
        else:
            array = _array(data[at : at + size], dtype, shape, is_base64)
        parts.append(OutputPart(name, dtype, array, is_binary, is_placed, is_base64))
        at += size
    model, version, request_id, parameters = told["model"], told["version"], told["id"], told["parameters"]
    if is_flat:
        outputs = Outputs({part.name: part.array for part in parts}, parameters)
        return encode_generated(model, version, request_id, outputs, {part.name: part.dtype for part in parts})
    return encode_response(model, version, request_id, parts, parameters).json


def _array(raw: memoryview, dtype: DataType, shape: list[int], is_base64: bool) -> Any:
    if dtype.is_bytes and is_base64:
        # Written as it is: there is no need to know its strings.
        return PackedStrings(raw, shape, "an output")
    if dtype.is_bytes:
        return decode_bytes(raw, int(np.prod(shape)), "an output").reshape(shape)
    return np.frombuffer(raw, dtype.numpy).reshape(shape)


def receive(connection: socket.socket, size: int) -> memoryview:
    """Receive exactly ``size`` bytes.

    Raises:
        ConnectionError: the other side is gone.
    """
    # Unlike a bytearray, its memory is not zeroed first.
    buffer: memoryview = np.empty(size, np.uint8).data
    have = 0
    while have < size:
        got = connection.recv_into(buffer[have:])
        if not got:
            raise ConnectionError("the connection was closed")
        have += got
    return buffer


def send(connection: socket.socket, kind: int, first_bytes: int, parts: Parts) -> None:
    """Send a frame."""
    connection.sendall(FRAME.pack(kind, first_bytes, sum(len(p) for p in parts)))
    for part in parts:
        connection.sendall(part)


def _work(connection: socket.socket) -> None:
    """Do one job."""
    kind, first_bytes, size = FRAME.unpack(receive(connection, FRAME.size))
    content = receive(connection, size)
    try:
        if kind in (WRITE, WRITE_FLAT):
            parts: Parts = [to_json(content[:first_bytes], content[first_bytes:], kind == WRITE_FLAT)]
        elif kind == GENERATE:
            parts = [*pack_generate(bytes(content[:first_bytes]), content[first_bytes:])]
        else:
            parts = to_binary(content, first_bytes, kind == READ_JSON_ALONE)
    except NaiadError as error:
        send(connection, FAILED, 0, [_encode_error(error)])
    except Exception as error:
        # The worker stays: one bad request must not cost the next one a restart.
        traceback.print_exc()
        text = f"large JSON could not be handled ({type(error).__name__}: {error}), see the server's log"
        send(connection, FAILED, 0, [_encode_error(InternalError(text))])
    else:
        send(connection, DONE, len(parts[0]), parts)


def _encode_error(error: NaiadError) -> bytes:
    return orjson.dumps({"error": type(error).__name__, "message": str(error)})


def main() -> int:
    """Work until the server closes the connection."""
    with socket.socket(fileno=int(sys.argv[1])) as connection, contextlib.suppress(ConnectionError, KeyboardInterrupt):
        while True:
            _work(connection)
    return 0


if __name__ == "__main__":
    sys.exit(main())
