"""The kinds of values, from a YAML file or as words of a command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class KeyKind:
    """How a value is read.

    Attributes:
        expected: what a value has to be, for errors and help.
        read: raises ValueError for anything else.
        is_flag: whether the option stands without a value.
    """

    expected: str
    read: Callable[[Any], Any]
    is_flag: bool = False


def _text(value: Any) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    found = {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())
    if found is None:
        raise ValueError
    return found


def whole(least: int = 0, most: int | None = None) -> KeyKind:
    """Whole numbers."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError
        number = int(value)
        if number < least or (most is not None and number > most):
            raise ValueError
        return number

    return KeyKind(f"a whole number from {least}" + ("" if most is None else f" to {most}"), read)


def number(least: float = 0) -> KeyKind:
    """Numbers with a fraction."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not float(value) >= least:
            raise ValueError
        return float(value)

    return KeyKind(f"a number from {least:g}", read)


def choice(*words: str) -> KeyKind:
    """One of some words."""

    def read(value: Any) -> str:
        if str(value) not in words:
            raise ValueError
        return str(value)

    return KeyKind(f"one of {', '.join(words)}", read)


def _items(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    if isinstance(value, Sequence):
        return list(value)
    return [value]


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        raise ValueError
    return tuple(_text(item) for item in _items(value))


def numbers(least: int = 1) -> KeyKind:
    """Whole numbers: a list, ``1,2,4``, or a range with ``start``, ``stop`` and ``step``."""
    one = whole(least)

    def read(value: Any) -> tuple[int, ...]:
        if isinstance(value, Mapping):
            if not {"start", "stop"} <= set(value) <= {"start", "stop", "step"}:
                raise ValueError
            start, stop, step = (one.read(value.get(name, 1)) for name in ("start", "stop", "step"))
            # The stop belongs to the range, as in the reference.
            found = tuple(range(start, stop + 1, max(step, 1)))
        else:
            found = tuple(one.read(item) for item in _items(value))
        if not found:
            raise ValueError
        return found

    return KeyKind("whole numbers: a list, '1,2,4', or start, stop and step", read)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError
    return dict(value)


def _charts(value: Any) -> dict[str, Any]:
    entries = [value] if isinstance(value, Mapping) else value
    if not isinstance(entries, list):
        raise ValueError
    found: dict[str, Any] = {}
    for entry in entries:
        found |= _mapping(entry)
    return found


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError
    return Path(value).expanduser()


def _size_lists(value: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError
    one = whole(1)
    return tuple(tuple(one.read(item) for item in _items(entry)) for entry in value)


TEXT: Final = KeyKind("a text", _text)
BOOLEAN: Final = KeyKind("true or false", _boolean)
FLAG: Final = KeyKind("true or false", _boolean, is_flag=True)
WORDS: Final = KeyKind("names: a list, or 'a,b'", _words)
MAPPING: Final = KeyKind("names with values", _mapping)
CHARTS: Final = KeyKind("charts by their names, as a mapping or a list of mappings", _charts)
PATH: Final = KeyKind("a path", _path)
SIZE_LISTS: Final = KeyKind("a list of lists of batch sizes, such as [[], [4, 8]]", _size_lists)
ANYTHING: Final = KeyKind("", lambda value: value)
