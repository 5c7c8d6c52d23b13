"""The rows of an explanation: one for each field of a completed configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from naiad.config.known_parameters.tables import find as find_parameter
from naiad.config.known_parameters.tables import known_parameters
from naiad.config.messages import is_repeated
from naiad.explain.fields import FIELDS, FieldHelp
from naiad.explain.origins import DEFAULT

if TYPE_CHECKING:
    from naiad.explain.origins import FindOrigin

_MICROSECONDS: Final = "_microseconds"


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field of a configuration.

    Attributes:
        path: such as ``input[0].dims``.
        value: as JSON has it; None for a message that is not set.
        unit: "us" for times; "" for none.
        origin: file and line, "auto-completed", "default", ...
        summary: what the field does.
        metric: what shows its effect; "" for none.
    """

    path: str
    value: Any
    unit: str
    origin: str
    summary: str
    metric: str

    def as_text(self) -> str:
        """The value as a person reads it, with its unit."""
        if self.value is None:
            return "not set"
        if self.unit:
            return f"{self.value} us ({self.value / 1000:g} ms)"
        return json.dumps(self.value)


def rows(config: Any, base: Any, find: FindOrigin) -> list[FieldRow]:
    """A row for each field of ``config``, a completed ``ModelConfig``.

    Args:
        base: the same configuration as written, with defaults alone.
        find: names the origins.
    """
    return list(_message(config, base, "", find, str(config.backend)))


def _message(message: Any, base: Any, prefix: str, find: FindOrigin, backend: str) -> Iterator[FieldRow]:
    for field in message.DESCRIPTOR.fields:
        path = f"{prefix}.{field.name}" if prefix else field.name
        help_ = FIELDS[message.DESCRIPTOR.name][field.name]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            yield from _map(message, base, field, path, find, backend, help_)
        elif field.message_type is None:
            yield _scalar(message, base, field, path, find, help_)
        elif is_repeated(field):
            yield from _list(message, base, field, path, find, backend, help_)
        elif message.HasField(field.name):
            inner = getattr(base, field.name) if base is not None and base.HasField(field.name) else None
            if field.message_type.fields:
                yield from _message(getattr(message, field.name), inner, path, find, backend)
            else:
                yield FieldRow(path, {}, "", find(path, inner is not None), *help_)
        else:
            yield FieldRow(path, None, "", DEFAULT, *help_)


def _scalar(message: Any, base: Any, field: Any, path: str, find: FindOrigin, help_: FieldHelp) -> FieldRow:
    value = _shown(getattr(message, field.name), field)
    usual = _shown(getattr(base, field.name), field) if base is not None else _usual(field)
    unit = "us" if field.name.endswith(_MICROSECONDS) else ""
    return FieldRow(path, value, unit, find(path, value == usual), *help_)


def _list(
    message: Any, base: Any, field: Any, path: str, find: FindOrigin, backend: str, help_: FieldHelp
) -> Iterator[FieldRow]:
    elements = getattr(message, field.name)
    usual = getattr(base, field.name) if base is not None else ()
    if not elements:
        yield FieldRow(path, [], "", DEFAULT, *help_)
    for index, element in enumerate(elements):
        inner = usual[index] if index < len(usual) else None
        yield from _message(element, inner, f"{path}[{index}]", find, backend)


def _map(
    message: Any, base: Any, field: Any, path: str, find: FindOrigin, backend: str, help_: FieldHelp
) -> Iterator[FieldRow]:
    entries = getattr(message, field.name)
    usual = getattr(base, field.name) if base is not None else {}
    kind = field.message_type.fields_by_name["value"]
    if not entries:
        yield FieldRow(path, {}, "", DEFAULT, *help_)
    for key in sorted(entries):
        inside = f'{path}["{key}"]'
        # Maps of protobuf make an entry where ``get`` finds none.
        inner = usual[key] if key in usual else None  # noqa: SIM401
        if kind.message_type is None:
            yield FieldRow(inside, entries[key], "", find(inside, entries[key] == inner), *help_)
        elif kind.message_type.name == "ModelParameter":
            known = find_parameter(key, known_parameters(backend))
            summary = help_.summary if known is None else f"{known.summary[0].upper()}{known.summary[1:]}."
            value = entries[key].string_value
            is_usual = inner is not None and value == inner.string_value
            yield FieldRow(inside, value, "", find(inside, is_usual), summary, help_.metric)
        else:
            yield from _message(entries[key], inner, inside, find, backend)


def _usual(field: Any) -> Any:
    return [] if is_repeated(field) else _shown(field.default_value, field)


def _shown(value: Any, field: Any) -> Any:
    if is_repeated(field):
        return [_single(element, field) for element in value]
    return _single(value, field)


def _single(value: Any, field: Any) -> Any:
    if field.enum_type is None:
        return value
    known = field.enum_type.values_by_number.get(value)
    return value if known is None else known.name
