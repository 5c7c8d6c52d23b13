"""Kinds of option values: numbers, words, files.

The texts are the reference's own, since people search for them; what it takes without a check is checked here.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from naiad.options.kinds import read_boolean
from naiad.perf.options.error import PerfOptionError
from naiad.perf.options.option import ValueKind

_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]{1,18}")
_INT32_MAX: Final = 2**31 - 1


def read_integer(text: str) -> int:
    """A whole number of 32 bits."""
    if not _INTEGER.fullmatch(text) or abs(int(text)) > _INT32_MAX:
        raise ValueError
    return int(text)


def read_number(text: str) -> float:
    """A finite number."""
    number = float(text)
    if not math.isfinite(number) or "_" in text:
        raise ValueError
    return number


def whole(minimum: int, refusal: str, maximum: int = _INT32_MAX) -> ValueKind:
    """A whole number of a range; ``refusal`` says which."""

    def read(text: str) -> int:
        number = read_integer(text)
        if not minimum <= number <= maximum:
            raise ValueError(refusal)
        return number

    return ValueKind("<n>", read)


def percent(minimum: float, refusal: str) -> ValueKind:
    """A number of percent that may have a fraction, and the sign for percent."""

    def read(text: str) -> float:
        found = read_number(text.removesuffix("%"))
        if found < minimum:
            raise ValueError(refusal)
        return found

    return ValueKind("<percent>", read)


def choice(
    *words: str, refusal: str = "", ignore_case: bool = False, other_names: Mapping[str, str] | None = None
) -> ValueKind:
    """One of ``words``; ``{text}`` in ``refusal`` stands for what was found. ``other_names`` are names for some."""

    def read(text: str) -> str:
        word = text.lower() if ignore_case else text
        if word in words:
            return word
        if other_names and word in other_names:
            return other_names[word]
        raise ValueError((refusal or _unsupported(words)).replace("{text}", text))

    return ValueKind(f"<{'|'.join(words)}>", read, words=words)


def _unsupported(words: tuple[str, ...]) -> str:
    quoted = [f"'{word}'" for word in words]
    listed = " or ".join(quoted) if len(quoted) < 3 else f"{', '.join(quoted[:-1])}, or {quoted[-1]}"
    return f"Unsupported type provided: '{{text}}'. The available options are {listed}."


def flag(constant: Any = True) -> ValueKind:
    """An option without a value."""
    return ValueKind("", _no_value, constant)


def _no_value(text: str) -> Any:
    raise ValueError


def _read_percentile(text: str) -> int | None:
    try:
        percentile = read_integer(text)
    except ValueError:
        percentile = 0
    if percentile != -1 and not 1 <= percentile <= 99:
        raise ValueError("The value must be -1 for not reporting or in range (0, 100).")
    return None if percentile == -1 else percentile


def existing_file(refusal: str) -> ValueKind:
    """The path of a file that is there."""

    def read(text: str) -> Path:
        if not os.path.isfile(text):  # unlike Path.is_file, False for names that no file can have
            raise ValueError(refusal)
        return Path(text)

    return ValueKind("<path>", read)


def new_file(*, may_exist: bool = True) -> ValueKind:
    """The path of a file that will be written; its folder has to be there."""

    def read(text: str) -> Path:
        path = Path(text)
        if not text or "\0" in text:
            raise ValueError
        if not may_exist and os.path.exists(path):
            raise ValueError("Path must not already exist.")
        # A run may take hours: that its results cannot be written is found before.
        if os.path.isdir(path):
            raise ValueError(f"Expected the path of a file, found the folder '{text}'.")
        if not os.path.isdir(path.parent):
            raise ValueError(f"There is no folder '{path.parent}' to write '{path.name}' into.")
        return path

    return ValueKind("<path>", read)


def whole_text(reader: Callable[[str], Any], label: str) -> ValueKind:
    """A kind with a reader of its own."""
    return ValueKind(label, reader)


def refused(label: str, reason: str) -> ValueKind:
    """The kind of an option that the reference has and that cannot be used here."""

    def read(text: str) -> Any:
        raise PerfOptionError(reason)

    return ValueKind(label, read)


TEXT: Final = ValueKind("<text>", str)
PATH: Final = ValueKind("<path>", Path)
PERCENTILE: Final = ValueKind("<n>", _read_percentile)
OPTIONAL_BOOLEAN: Final = ValueKind("<boolean>", read_boolean, constant=True, is_optional=True)
