"""An explanation as text, as JSON, and as the table of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import orjson

from naiad.config.known_parameters import every_model
from naiad.config.known_parameters.parameter import KnownParameter
from naiad.config.known_parameters.tables import BY_BACKEND
from naiad.config.messages import message_class
from naiad.explain.fields import FIELDS
from naiad.explain.rows import FieldRow


def as_text(rows: Iterable[FieldRow]) -> str:
    """Two lines for each field: its value and origin, and what it does."""
    return "\n".join(_text(row) for row in rows)


def _text(row: FieldRow) -> str:
    head = f"{row.path}: {row.as_text()}  [{row.origin}]"
    return f"{head}\n    {row.summary}{f' Metric: {row.metric}.' if row.metric else ''}"


def as_json(model: str, rows: Iterable[FieldRow]) -> bytes:
    """An object with the model's name and a list of fields."""
    return orjson.dumps({"model": model, "fields": [asdict(row) for row in rows]}, option=orjson.OPT_INDENT_2)


def below(rows: Sequence[FieldRow], field: str) -> list[FieldRow]:
    """The rows of a field and of all within it; a list's name stands for all of its elements."""
    return [row for row in rows if row.path == field or row.path.startswith((f"{field}.", f"{field}["))]


def field_names() -> list[str]:
    """The paths of all fields, without the numbers of elements and the keys of maps."""
    return [path for path, *_ in _fields(message_class("ModelConfig").DESCRIPTOR, "")]


def not_set(field: str) -> list[FieldRow]:
    """Rows for a field that a configuration does not set, and for all within it: what they would do."""
    found = (FieldRow(path, None, "", "not set", *line) for path, line in _fields_of_config())
    return below(list(found), field)


class FieldLine(NamedTuple):
    """What the documentation says of a field: its path, one sentence, and the metric that shows its effect or ""."""

    path: str
    summary: str
    metric: str


def field_lines() -> list[FieldLine]:
    """Every field of a configuration, each followed by those within it."""
    return [FieldLine(path, *line) for path, line in _fields_of_config()]


def markdown() -> str:
    """The fields and the parameters as tables for the documentation."""
    lines = ["| field | meaning | metric |", "|---|---|---|"]
    lines += [f"| `{path}` | {summary} | {_code(metric)} |" for path, summary, metric in field_lines()]
    tables = {"every model of a framework": every_model.PARAMETERS, **BY_BACKEND}
    for title, parameters in tables.items():
        lines += ["", f"## `parameters` of {title}", "", "| name | meaning |", "|---|---|"]
        lines += [f"| `{parameter.name}` | {_meaning(parameter)} |" for parameter in parameters]
    return "\n".join(lines) + "\n"


def _meaning(parameter: KnownParameter) -> str:
    return f"{parameter.summary}; needs {parameter.needs}" if parameter.needs else parameter.summary


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _fields_of_config() -> Iterator[tuple[str, Any]]:
    return _fields(message_class("ModelConfig").DESCRIPTOR, "")


def _fields(descriptor: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for field in descriptor.fields:
        path = f"{prefix}.{field.name}" if prefix else field.name
        yield path, FIELDS[descriptor.name][field.name]
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            inner = inner.fields_by_name["value"].message_type
        if inner is not None:
            yield from _fields(inner, path)
