"""The values of trace settings, from the command line and from API requests.

Source of names, ranges and texts: the protocol's "trace" extension and ``--trace-config`` of the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from naiad.options.kinds import INT32_MAX, Kind

OFF: Final = "OFF"
TIMESTAMPS: Final = "TIMESTAMPS"
TENSORS: Final = "TENSORS"
RANGES: Final = {"trace_rate": (0, 2**32 - 1), "trace_count": (-1, INT32_MAX), "log_frequency": (0, 2**32 - 1)}
"""The settings that are numbers, with their smallest and largest value."""

TRITON: Final = "triton"
OPENTELEMETRY: Final = "opentelemetry"
BATCHING: Final = {"bsp_max_queue_size": 2048, "bsp_schedule_delay": 5000, "bsp_max_export_batch_size": 512}
"""How spans are collected, with the defaults of the reference; the delay is in ms."""
HTTP_PROTOBUF: Final = "http/protobuf"
GRPC: Final = "grpc"
PROTOCOLS: Final = (HTTP_PROTOBUF, GRPC)
"""How spans travel, by OpenTelemetry's names."""
_MOST: Final = 1 << 20
ONLY_OFF: Final = "Expect only one trace level 'OFF' is specified"
TENSORS_IN_FILES: Final = "the trace level TENSORS is for files: it needs --trace-config mode=triton"
_LEVELS: Final = {OFF: OFF, TENSORS: TENSORS} | dict.fromkeys((TIMESTAMPS, "MIN", "MAX", "TRUE", "ON"), TIMESTAMPS)
# Twenty digits are enough for every range, and ``int`` refuses a number of thousands of digits in other words.
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_SETTINGS: Final = {
    "": {"mode": "mode", "level": "trace_level", "rate": "trace_rate", "count": "trace_count"},
    "triton": {"file": "trace_file", "log-frequency": "log_frequency"},
    OPENTELEMETRY: {"url": "url", "protocol": "protocol", "resource": "resource"} | {name: name for name in BATCHING},
}


@dataclass(frozen=True, slots=True)
class TraceSetting:
    """A ``--trace-config`` value: ``name`` is the protocol's name of the setting, such as ``trace_rate``."""

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
    # The reference has a text of its own for this bound.
    if name == "trace_count" and value < low:
        raise ValueError(f"Unable to parse '{name}'. Expecting value >= {low}, got:{text}")
    # The reference wraps such numbers around: a silent wrong value is worse than an error.
    if not low <= value <= high:
        raise ValueError(f"Unable to parse '{name}', value is out of range [ {low}, {high} ], got: {text}")
    return value


def batching_number(text: str) -> int:
    """The number of a setting of ``BATCHING``.

    Raises:
        ValueError: it is no number, or out of range.
    """
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= _MOST:
        raise ValueError(f"expected a number from 1 to {_MOST}, got: {text}")
    return int(text)


def span_protocol(text: str) -> str:
    """One of ``PROTOCOLS``.

    Raises:
        ValueError: it is another one.
    """
    if text not in PROTOCOLS:
        raise ValueError(f"unknown protocol {text!r}, known ones are {' and '.join(PROTOCOLS)}")
    return text


def known_level(text: str) -> str | None:
    """The level that ``text`` names, in any case; None for an unknown name."""
    return _LEVELS.get(text.upper())


def trace_levels(texts: Sequence[str]) -> tuple[str, ...]:
    """All levels, each once; ``OFF`` alone for none. Unknown levels are ignored, as in the reference.

    Raises:
        ValueError: OFF is combined with another level.
    """
    found = tuple(dict.fromkeys(level for text in texts if (level := known_level(text)) is not None))
    if OFF in found and len(texts) > 1:
        raise ValueError(ONLY_OFF)
    return found or (OFF,)


def trace_mode(settings: Iterable[TraceSetting]) -> str:
    """The destination of traces, ``TRITON`` (files) or ``OPENTELEMETRY``: the last value given."""
    return next((str(item.value) for item in reversed(tuple(settings)) if item.name == "mode"), TRITON)


def trace_problems(settings: Sequence[TraceSetting]) -> Iterator[str]:
    """The conflicts among ``settings``."""
    levels = {item.value for item in settings if item.name == "trace_level"}
    if OFF in levels and len(levels) > 1:
        yield f"{ONLY_OFF}: give --trace-config level once"
    if trace_mode(settings) == OPENTELEMETRY:
        if TENSORS in levels:
            yield TENSORS_IN_FILES
    elif levels - {OFF} and not any(item.name == "trace_file" for item in settings):
        yield "--trace-config level needs a file: name one with --trace-config triton,file=<path>"


def _read(text: str) -> TraceSetting:
    key, mark, value = text.partition("=")
    mode, comma, name = key.rpartition(",")
    if not mark:
        raise ValueError(f"Invalid option value. Got {text}")
    settings = _SETTINGS.get(mode.lower(), {})
    if name not in settings or (comma and not mode):
        known = ", ".join(f"{mode}," * bool(mode) + key for mode, keys in _SETTINGS.items() for key in keys)
        raise ValueError(f"unknown setting {key!r}, known ones are {known}")
    return TraceSetting(settings[name], _value(settings[name], value))


def _value(name: str, text: str) -> int | str:
    if name in RANGES:
        return trace_number(name, text)
    if name == "mode":
        if text.lower() not in (TRITON, OPENTELEMETRY):
            raise ValueError(f"Invalid option value. Got {text}")
        return text.lower()
    if name in BATCHING:
        try:
            return batching_number(text)
        except ValueError as error:
            # The option may be given once for each of them.
            raise ValueError(f"{OPENTELEMETRY},{name}: {error}") from None
    elif name == "protocol":
        return span_protocol(text)
    elif name == "url":
        # As for the reference, whose default has no scheme: "localhost:4318/v1/traces" means http.
        url = text if "://" in text else f"http://{text}"
        if not re.fullmatch(r"https?://[!-~]+", url):
            raise ValueError(f"the url {text!r} does not begin with http:// or https://")
        return url
    elif name == "resource":
        key, mark, _ = text.partition("=")
        if not (key and mark):
            raise ValueError(f"the resource {text!r} is not of the form <key>=<value>")
    elif name == "trace_level":
        return _level(text)
    elif not text or "\0" in text:
        raise ValueError("Invalid option value. The path is empty or holds a NUL character")
    return text


def _level(text: str) -> str:
    level = known_level(text)
    if level is None:
        raise ValueError(f"unknown trace level {text!r}, known ones are OFF, TIMESTAMPS and TENSORS")
    return level


TRACE_SETTING: Final = Kind(
    "<setting>=<value>",
    "mode=triton or opentelemetry, level=OFF, TIMESTAMPS or TENSORS, rate=<integer>, count=<integer>, "
    "triton,file=<path>, triton,log-frequency=<integer>, opentelemetry,url=<url>, "
    "opentelemetry,protocol=http/protobuf or grpc, opentelemetry,resource=<key>=<value>, "
    "opentelemetry,bsp_max_queue_size=<integer>, "
    "opentelemetry,bsp_schedule_delay=<ms> or opentelemetry,bsp_max_export_batch_size=<integer>",
    _read,
)


def deprecated_trace(key: str, label: str) -> Kind:
    """The value of the option that ``--trace-config <key>=`` replaces, read by its kind."""
    return Kind(label, f"what --trace-config {key}={label} takes", lambda text: _read(f"{key}={text}"))
