"""Changing the log's settings by name, as the protocol's "logging" extension does.

Names and texts are the reference's. An unknown setting is ignored, as in the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from naiad.errors import InvalidArgumentError, MalformedRequestError, UnsupportedError
from naiad.telemetry.logs.server_log import FORMATS, LogSettings

LOG_SETTINGS: Final = tuple(field.name for field in fields(LogSettings))
"""The names of the settings, in their order in a response."""

FILE_IS_FIXED: Final = "log file location can not be updated through network protocol"
_UINT32_MAX: Final = 2**32 - 1


class LogFormatError(InvalidArgumentError):
    """There is no such log format; ``found`` is its name."""

    def __init__(self, found: str) -> None:
        super().__init__(f"invalid argument for log_format, got: {found}")
        self.found = found


def updated(settings: LogSettings, changes: Mapping[str, Any]) -> LogSettings:
    """``settings`` with ``changes`` by name: True or False, a level from 0, or the name of a format.

    Raises:
        UnsupportedError: ``log_file`` is among the changes.
        LogFormatError: the format is unknown.
        MalformedRequestError: a value has the wrong type.
    """
    if "log_file" in changes:
        raise UnsupportedError(FILE_IS_FIXED)
    # All or nothing: the reference changes the settings before a wrong one.
    return replace(settings, **{name: _checked(name, changes[name]) for name in LOG_SETTINGS if name in changes})


def _checked(name: str, value: Any) -> Any:
    if name == "log_verbose_level":
        return _level(name, value)
    if name == "log_format":
        return _format(name, value)
    if not isinstance(value, bool):
        raise MalformedRequestError(f"expect boolean for '{name}'")
    return value


def _level(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _UINT32_MAX:
        raise MalformedRequestError(f"expect unsigned integer for '{name}', from 0 to {_UINT32_MAX}")
    return value


def _format(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedRequestError(f"expect string for '{name}'")
    if value not in FORMATS:
        raise LogFormatError(value)
    return value
