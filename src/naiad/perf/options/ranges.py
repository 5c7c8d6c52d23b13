"""Ranges of load levels and of sequence ids, as ``start:end:step``."""

from __future__ import annotations

import math
import re
from typing import Final

from naiad.perf.options.option import ValueKind
from naiad.perf.settings import Range

_COUNT: Final = re.compile(r"\s*\+?[0-9]{1,9}")
_LABEL: Final = "<start:end:step>"
_MISMATCH: Final = f"The value does not match {_LABEL}."
_STEP: Final = "The <step> value must be > 0."


def _concurrency(text: str) -> Range:
    return _range([_count(part) for part in _parts(text)])


def _rate(text: str) -> Range:
    return _range([_rate_of(part) for part in _parts(text)])


def _periodic(text: str) -> Range:
    if text.count(":") < 1:
        raise ValueError("Both <start> and <end> values must be provided.")
    found = _range([_count(part) for part in _parts(text)])
    if found.start > found.end:
        raise ValueError("The <start> must be <= <end>.")
    if (found.end - found.start) % found.step:
        raise ValueError("The <step> value must be a factor of the range size (<end> - <start>).")
    return found


def _sessions(text: str) -> Range:
    count = _count(text)
    if count == 0:
        raise ValueError("Session concurrency must be > 0.")
    return Range(count, count, 1)


def read_count(text: str) -> Range:
    """One level of the deprecated ``-t`` and ``-c``."""
    count = _count(text)
    return Range(count, count, 1)


def _parts(text: str) -> list[str]:
    parts = text.split(":")
    if len(parts) > 3:
        raise ValueError(_MISMATCH)
    return parts


def _range(parts: list[float]) -> Range:
    start, end, step = (*parts, *(parts[0], 1)[len(parts) - 1 :]) if len(parts) < 3 else parts
    # The reference would stay at the first level for ever.
    if step <= 0:
        raise ValueError(_STEP)
    return Range(start, end, step, is_explicit=len(parts) > 1)


def _count(text: str) -> float:
    # A sign would wrap around in the reference, to more levels than anybody can wait for.
    if not _COUNT.fullmatch(text):
        raise ValueError
    return int(text)


def _rate_of(text: str) -> float:
    rate = float(text)
    if not math.isfinite(rate) or "_" in text:
        raise ValueError
    return rate


def _sequence_ids(text: str) -> tuple[int, int]:
    """The first id, and the one behind the last; 0 for no end."""
    parts = text.split(":")
    if len(parts) > 2:
        raise ValueError("The value does not match <start:end>.")
    numbers = [int(part) for part in parts if re.fullmatch(r"\s*[+-]?[0-9]{1,18}", part)]
    if len(numbers) != len(parts):
        raise ValueError
    if min(numbers) < 0:
        raise ValueError("The range values must be >= 0.")
    start, end = numbers if len(numbers) == 2 else (numbers[0], 0)
    # Equal ones leave no id; the reference takes them for a range without an end.
    if len(numbers) == 2 and start >= end:
        raise ValueError("The 'end' value must be greater than 'start' value.")
    return start, end


CONCURRENCY: Final = ValueKind(_LABEL, _concurrency)
PERIODIC: Final = ValueKind(_LABEL, _periodic)
RATE: Final = ValueKind(_LABEL, _rate)
SESSIONS: Final = ValueKind("<n>", _sessions)
COUNT: Final = ValueKind("<n>", read_count)
SEQUENCE_IDS: Final = ValueKind("<start:end>", _sequence_ids)
