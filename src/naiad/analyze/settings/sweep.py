"""Model configuration parameters whose values are lists: every combination is a configuration."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import json_format

from naiad.config.messages import is_repeated, message_class
from naiad.config.parsing.suggest import did_you_mean

_MOST: Final = 10_000


class SweepError(ValueError):
    """The parameters are wrong; the text says what was found and what was expected."""


def configurations_of(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Every combination of the listed values, as fields of a configuration.

    A list where a field takes one value lists alternatives. Where a field takes a list, such as ``instance_group``, its
    entries are swept by themselves, and a list of lists lists alternatives. None leaves a field out, also one
    that the repository has, as in the reference.

    Raises:
        SweepError: a field is unknown, or a value does not fit it.
    """
    found = list(_sweep_message(parameters, message_class("ModelConfig").DESCRIPTOR, ""))
    if len(found) > _MOST:
        raise SweepError(f"{len(found)} combinations, expected at most {_MOST}")
    for config in found:
        try:
            json_format.ParseDict(config, message_class("ModelConfig")())
        except json_format.ParseError as error:
            raise SweepError(f"{config} is no part of a configuration: {error}") from None
    return tuple(found)


def _sweep_message(value: Any, descriptor: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, Mapping):
        raise SweepError(f"{where or 'it'} is {value!r}, expected fields")
    if descriptor.GetOptions().map_entry:
        raise SweepError(f"{where} is a map")
    fields = {field.name: field for field in descriptor.fields}
    columns = []
    for name, given in value.items():
        field = fields.get(str(name))
        path = f"{where}.{name}" if where else str(name)
        if field is None:
            raise SweepError(f"unknown field '{path}'{did_you_mean(str(name), fields)}")
        columns.append([(str(name), one) for one in _sweep_field(given, field, path)])
    found = [dict(combination) for combination in itertools.product(*columns)]
    return [_without_none(config) for config in found] if where else found


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _sweep_field(value: Any, field: Any, where: str) -> list[Any]:
    if value is None:
        return [None]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _sweep_map(value, field.message_type.fields_by_name["value"], where)
    if is_repeated(field):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise SweepError(f"{where} is {value!r}, expected a list")
        if value and all(isinstance(entry, list) for entry in value):
            return [one for entry in value for one in _sweep_entries(entry, field, where)]
        return _sweep_entries(value, field, where)
    alternatives = value if isinstance(value, list) else [value]
    if field.message_type is None:
        return list(alternatives)
    found: list[Any] = []
    for entry in alternatives:
        found += [None] if entry is None else _sweep_message(entry, field.message_type, where)
    return found


def _sweep_entries(entries: Sequence[Any], field: Any, where: str) -> list[list[Any]]:
    if field.message_type is None:
        return [list(entries)]
    columns = [_sweep_message(entry, field.message_type, where) for entry in entries]
    return [list(combination) for combination in itertools.product(*columns)]


def _sweep_map(value: Any, field: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, Mapping):
        raise SweepError(f"{where} is {value!r}, expected names with values")
    columns = []
    for name, given in value.items():
        ways = given if isinstance(given, list) else [given]
        if field.message_type is not None:
            path = f"{where}.{name}"
            ways = [one for way in ways if way is not None for one in _sweep_message(way, field.message_type, path)]
            ways += [None] * (given is None or (isinstance(given, list) and None in given))
        columns.append([(str(name), way) for way in ways])
    return [_without_none(dict(combination)) for combination in itertools.product(*columns)]
