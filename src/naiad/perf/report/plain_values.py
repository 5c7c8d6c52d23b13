"""Data classes to plain values of JSON and back, by their annotations."""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from naiad.perf.histogram import DurationHistogram


class PlainValueError(ValueError):
    """A value that does not fit its annotation; the text says where it stands, what was found and what was expected."""


def to_plain(value: Any) -> Any:
    """Dictionaries, lists, strings and numbers; a ``Counter`` of tuples as a list of lists with the count last."""
    if isinstance(value, DurationHistogram):
        return value.state()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Counter):
        return [[*key, count] for key, count in value.most_common()]
    if isinstance(value, Mapping):
        return {str(name): to_plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        elements = sorted(value) if isinstance(value, set | frozenset) else value
        return [to_plain(element) for element in elements]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def from_plain(annotation: Any, value: Any, where: str) -> Any:
    """The value of ``annotation`` that ``to_plain`` made ``value`` of. Unknown names are passed over.

    Args:
        where: the place in the file, for errors.

    Raises:
        PlainValueError: it does not fit.
    """
    if is_dataclass(annotation):
        return _data_class(annotation, value, where)
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return from_plain(next(part for part in get_args(annotation) if part is not types.NoneType), value, where)
    if origin in (list, tuple):
        element = get_args(annotation)[0]
        found = _checked(list, value, where)
        return origin(from_plain(element, inner, f"{where}[{place}]") for place, inner in enumerate(found))
    if origin is dict:
        inner_type = get_args(annotation)[1]
        found = _checked(dict, value, where)
        return {name: from_plain(inner_type, inner, f"{where}.{name}") for name, inner in found.items()}
    return _single(annotation, value, where)


def _single(annotation: Any, value: Any, where: str) -> Any:
    try:
        if annotation is DurationHistogram:
            return DurationHistogram.from_state(_checked(dict, value, where))
        if get_origin(annotation) is Counter:
            return Counter({tuple(map(str, key)): int(count) for *key, count in _checked(list, value, where)})
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return annotation(value)
    except PlainValueError:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise PlainValueError(f"{where}: cannot be read: {error}") from None
    return _checked(annotation, value, where)


_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def _checked(kind: Any, value: Any, where: str) -> Any:
    if kind in (Any, object):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise PlainValueError(f"{where}: found {_short(value)}, expected {_NAMES.get(kind, kind.__name__)}")
    return value


def _data_class(kind: Any, value: Any, where: str) -> Any:
    found = _checked(dict, value, where)
    hints = get_type_hints(kind)
    given = {}
    for field in fields(kind):
        if field.name in found:
            given[field.name] = from_plain(hints[field.name], found[field.name], f"{where}.{field.name}".lstrip("."))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise PlainValueError(f"{where or 'the file'}: '{field.name}' is missing")
    return kind(**given)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
