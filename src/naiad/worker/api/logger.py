"""``Logger``: lines in the server's log, with the file and line of the model that wrote them."""

from __future__ import annotations

import sys
from enum import IntEnum

from ..ipc.errors import as_text
from . import current


class LogLevel(IntEnum):
    """How important a line is."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


class Logger:
    """Writes to the server's log, or to stderr in a process that is no worker."""

    LogLevel = LogLevel
    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: int = LogLevel.INFO) -> None:
        """Write a line of a level.

        Raises:
            TypeError: the level is no ``LogLevel``.
        """
        if not isinstance(level, LogLevel):
            raise TypeError(f"Logger: the level must be a LogLevel such as Logger.INFO, found {level!r}")
        _write(level, message)

    @staticmethod
    def log_info(message: str) -> None:
        """Write a line of the level INFO."""
        _write(LogLevel.INFO, message)

    @staticmethod
    def log_warn(message: str) -> None:
        """Write a warning."""
        _write(LogLevel.WARNING, message)

    @staticmethod
    def log_error(message: str) -> None:
        """Write an error."""
        _write(LogLevel.ERROR, message)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Write a line that only a verbose log has."""
        _write(LogLevel.VERBOSE, message)


def _write(level: LogLevel, message: str) -> None:
    message = as_text(message, "Logger: the message")
    # The model's own line: two frames up, behind the method of ``Logger``.
    caller = sys._getframe(2)
    file, line = caller.f_code.co_filename, caller.f_lineno
    host = current.find()
    if host is None:
        sys.stderr.write(f"{level.name} {file}:{line} {message}\n")
    else:
        host.log(level.name, message, file, line)
