"""Single values in JSON and YAML where a list belongs, as the reference's reader of JSON takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from naiad.config.messages import is_repeated

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor


def with_lists(data: Any, descriptor: Descriptor) -> Any:
    """``data`` of the message ``descriptor`` with a list of one element wherever a single value stands for it."""
    if not isinstance(data, dict):
        return data
    return {name: _value(value, _field(name, descriptor)) for name, value in data.items()}


def _field(name: Any, descriptor: Descriptor) -> FieldDescriptor | None:
    return descriptor.fields_by_name.get(name) or descriptor.fields_by_camelcase_name.get(name)


def _value(value: Any, field: FieldDescriptor | None) -> Any:
    if field is None or value is None:
        return value
    inner = field.message_type
    # Before the lists: protobuf counts a map as repeated, and in JSON it is one object.
    if inner is not None and inner.GetOptions().map_entry:
        held = inner.fields_by_name["value"]
        return {key: _value(one, held) for key, one in value.items()} if isinstance(value, dict) else value
    if is_repeated(field):
        values = value if isinstance(value, list) else [value]
        return values if inner is None else [with_lists(one, inner) for one in values]
    return value if inner is None else with_lists(value, inner)
