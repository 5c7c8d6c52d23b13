"""Parameters, as JSON and as protobuf: those of a model's response, and single ones of a client's request.

Source: protocol sections "Inference Response JSON Object" and ``InferParameter``; places as recorded.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Final

import orjson

from naiad.errors import BackendError
from naiad.request import NO_PARAMETERS, Array, Outputs, Parameters, ParameterValue
from naiad.wire.proto_fields import field, field_head, varint

FINAL: Final = "triton_final_response"
"""The parameter that marks the last response in a stream. It belongs to the server: a model cannot set it."""

_PARAMETERS: Final = 4
_UINT64 = range(2**64)
_INT64 = range(-(2**63), 2**63)
_double = struct.Struct("<d")


def parameters_of(outputs: Mapping[str, Array]) -> Parameters:
    """The parameters that came with these outputs; mostly none."""
    return outputs.parameters if isinstance(outputs, Outputs) else NO_PARAMETERS


def parameters_json(parameters: Parameters) -> bytes:
    """The member ``parameters`` of a response with the comma after it; empty without parameters.

    Raises:
        BackendError: JSON has no such value.
    """
    if not parameters:
        return b""
    pieces = [b"%s:%s" % (value_json(name, name), value_json(name, value)) for name, value in parameters.items()]
    return b'"parameters":{%s},' % b",".join(pieces)


def value_json(name: str, value: ParameterValue) -> bytes:
    """The value of the parameter ``name`` as JSON; errors as ``parameters_json``."""
    if not isinstance(value, bool | int | float | str):
        raise _refused(name, value)
    if isinstance(value, float):
        # With the bare words NaN and Infinity, as in tensors.
        return json.dumps(value).encode()
    try:
        return orjson.dumps(value)
    except TypeError:
        # A number beyond 64 bits, or half of a surrogate pair.
        raise _refused(name, value) from None


def parameter_fields(parameters: Parameters) -> bytes:
    """The field ``parameters`` of a ``ModelInferResponse``, once for each parameter.

    Raises:
        BackendError: a value that ``InferParameter`` cannot hold.
    """
    return b"".join([parameter_field(name, value) for name, value in parameters.items() if name != FINAL])


def parameter_field(name: str, value: ParameterValue) -> bytes:
    """One entry of that field; errors as there."""
    found = parameter_entry(name, value)
    if found is None:
        raise _refused(name, value)
    return found


def parameter_entry(name: str, value: object, number: int = _PARAMETERS) -> bytes | None:
    """One entry of the map of ``InferParameter`` that is the field ``number`` of its message.

    None for a value that an ``InferParameter`` cannot hold.
    """
    try:
        held = _held(value)
        return None if held is None else field(number, field(1, name.encode()) + field_head(2, len(held)) + held)
    except UnicodeEncodeError:
        return None


def _held(value: object) -> bytes | None:
    """The one field of an ``InferParameter``."""
    # A bool is also an int, so it comes first.
    if isinstance(value, bool):
        return bytes((0x08, value))
    if isinstance(value, int) and value in _INT64:
        return b"\x10" + varint(value % 2**64)
    if isinstance(value, int) and value in _UINT64:
        return b"\x28" + varint(value)
    if isinstance(value, str):
        raw = value.encode()
        return field_head(3, len(raw)) + raw
    if isinstance(value, float):
        return b"\x21" + _double.pack(value)
    return None


def _refused(name: str, value: object) -> BackendError:
    return BackendError(
        f"the model gave its response the parameter {name!r} with the value {repr(value)[:80]}, expected a bool, a "
        "string of Unicode characters or a number of 64 bits"
    )
