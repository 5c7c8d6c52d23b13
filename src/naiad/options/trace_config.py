"""The values of trace settings, which come from the command line and from requests alike.

Source of names, ranges and texts: the protocol's "trace" extension and ``--trace-config`` of the reference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from naiad.options.kinds import INT32_MAX, Kind

OFF: Final = "OFF"
TIMESTAMPS: Final = "TIMESTAMPS"
TENSORS: Final = "TENSORS"
RANGES: Final = {"trace_rate": (0, 2**32 - 1), "trace_count": (-1, INT32_MAX), "log_frequency": (0, 2**32 - 1)}
"""The settings that are numbers, with their smallest and largest value."""

ONLY_OFF: Final = "Expect only one trace level 'OFF' is specified"
_LEVELS: Final = {OFF: OFF, TENSORS: TENSORS} | dict.fromkeys((TIMESTAMPS, "MIN", "MAX", "TRUE", "ON"), TIMESTAMPS)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_SETTINGS: Final = {
    "": {"mode": "mode", "level": "trace_level", "rate": "trace_rate", "count": "trace_count"},
    "triton": {"file": "trace_file", "log-frequency": "log_frequency"},
}
_NOT_YET: Final = "opentelemetry is not supported by this version of naiad"


@dataclass(frozen=True, slots=True)
class TraceSetting:
    """One ``--trace-config`` value: ``name`` is that of the protocol, such as ``trace_rate``."""

    name: str
    value: int | str

    def __str__(self) -> str:
        """As it is written on the command line."""
        written = {
            name: f"{mode}," * bool(mode) + key for mode, known in _SETTINGS.items() for key, name in known.items()
        }
        return f"{written[self.name]}={self.value}"


def trace_number(name: str, text: str) -> int:
    """The number of a setting of ``RANGES``.

    Raises:
        ValueError: it is no number, or out of range.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"Unable to parse '{name}', got: {text}")
    value, (low, high) = int(text), RANGES[name]
    if name == "trace_count" and value < low:
        raise ValueError(f"Unable to parse '{name}'. Expecting value >= {low}, got:{text}")
    if not low <= value <= high:
        raise ValueError(f"Unable to parse '{name}', value is out of range [ {low}, {high} ], got: {text}")
    return value


def known_level(text: str) -> str | None:
    """The level that ``text`` is a name of, in any case; None for no level."""
    return _LEVELS.get(text.upper())


def trace_levels(texts: Sequence[str]) -> tuple[str, ...]:
    """The levels together, each once; ``OFF`` alone for none. Unknown ones are left out, as in the reference.

    Raises:
        ValueError: OFF stands beside another level.
    """
    found = tuple(dict.fromkeys(level for text in texts if (level := known_level(text)) is not None))
    if OFF in found and len(texts) > 1:
        raise ValueError(ONLY_OFF)
    return found or (OFF,)


def _read(text: str) -> TraceSetting:
    key, mark, value = text.partition("=")
    mode, comma, name = key.rpartition(",")
    if not mark:
        raise ValueError(f"Invalid option value. Got {text}")
    if mode == "opentelemetry":
        raise ValueError(_NOT_YET)
    settings = _SETTINGS.get(mode, {})
    if name not in settings or (comma and not mode):
        known = ", ".join([*_SETTINGS[""], *("triton," + key for key in _SETTINGS["triton"])])
        raise ValueError(f"unknown setting {key!r}, known ones are {known}")
    return TraceSetting(settings[name], _value(settings[name], value))


def _value(name: str, text: str) -> int | str:
    if name in RANGES:
        return trace_number(name, text)
    if name == "mode":
        if text == "opentelemetry":
            raise ValueError(_NOT_YET)
        if text != "triton":
            raise ValueError(f"Invalid option value. Got {text}")
    elif name == "trace_level":
        return _level(text)
    elif not text or "\0" in text:
        raise ValueError("Invalid option value. The path is empty or holds a NUL character")
    return text


def _level(text: str) -> str:
    level = known_level(text)
    if level == TENSORS:
        raise ValueError("level=TENSORS is not supported by this version of naiad")
    if level is None:
        raise ValueError(f"unknown trace level {text!r}, known ones are OFF and TIMESTAMPS")
    return level


TRACE_SETTING: Final = Kind(
    "<setting>=<value>",
    "mode=triton, level=OFF or TIMESTAMPS, rate=<integer>, count=<integer>, triton,file=<path> or "
    "triton,log-frequency=<integer>",
    _read,
)


def deprecated_trace(key: str, label: str) -> Kind:
    """The value of an option that ``--trace-config <key>=`` stands in for, read as that would be."""
    return Kind(label, f"what --trace-config {key}={label} takes", lambda text: _read(f"{key}={text}"))
