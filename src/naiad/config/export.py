"""The configuration as the protocol's configuration endpoint shows it.

Every field is there, also the empty ones; messages and members of a ``oneof`` only when set. 64-bit integers are JSON
numbers and enumerations are names. Source: recorded responses of the reference server.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from naiad.config.messages import is_repeated

if TYPE_CHECKING:
    from google.protobuf.message import Message

_FLOATS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
_LARGEST = float(np.finfo(np.float32).max)


def config_json(config: Message) -> bytes:
    """``config`` as compact JSON; maps are sorted by key."""
    return orjson.dumps(_message(config))


def set_fields(message: Message) -> dict[str, Any]:
    """The fields of a configuration that differ from their defaults, as JSON values: what a person would write."""
    return {field.name: _set_field(value, field) for field, value in message.ListFields()}


def _set_field(value: Any, field: Any) -> Any:
    if field.message_type is None:
        return [_value(element, field) for element in value] if is_repeated(field) else _value(value, field)
    if field.message_type.GetOptions().map_entry:
        kind = field.message_type.fields_by_name["value"]
        return {
            str(key): _value(value[key], kind) if kind.message_type is None else set_fields(value[key])
            for key in sorted(value)
        }
    return [set_fields(element) for element in value] if is_repeated(field) else set_fields(value)


def config_pbtxt(config: Message) -> str:
    """``config`` as a config.pbtxt, fields in the order of the reference documentation."""
    return text_format.MessageToString(config, use_index_order=True, as_utf8=True)


def _message(message: Message) -> dict[str, Any]:
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields if _is_shown(message, field)}


def _is_shown(message: Message, field: Any) -> bool:
    return not field.has_presence or message.HasField(field.name)


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        kind = field.message_type.fields_by_name["value"]
        return {str(key): _value(value[key], kind) for key in sorted(value)}
    if is_repeated(field):
        return [_value(element, field) for element in value]
    return _value(value, field)


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return _number(value, field) if field.cpp_type in _FLOATS else value


def _number(value: float, field: Any) -> float | int | str:
    """The shortest number that reads back as ``value``, without a fraction where it has none."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if abs(value) < 1e15 and value.is_integer():
        return int(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return value
    shortest = float(str(np.float32(value)))
    # That of the largest number is above it, and readers refuse it as too large.
    return shortest if abs(shortest) <= _LARGEST else value
