"""The log of a server in a program in a file, beside what the program's own handlers take."""

from __future__ import annotations

import logging
import threading
from typing import Final

from naiad.telemetry.logs.server_log import LOGGER, ServerLog


class FileLog:
    """Writes the lines of servers by the settings of a log; the program's handlers get those that they got before.

    Args:
        log: with a file.
    """

    def __init__(self, log: ServerLog) -> None:
        self._log = log
        _FILE_HANDLERS.add(log)

    def close(self) -> None:
        """Log as before, and close the file."""
        _FILE_HANDLERS.remove(self._log)
        self._log.close()


class _FileHandlers:
    """The files of all servers as handlers, which may want lower levels than those of the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: list[ServerLog] = []
        self._level, self._propagates = logging.NOTSET, True
        self._others = _OthersHandler()

    def add(self, log: ServerLog) -> None:
        with self._lock:
            if not self._logs:
                self._begin()
            self._logs.append(log)
            LOGGER.addHandler(log)
            LOGGER.setLevel(min(log.settings.lowest_level, LOGGER.level))

    def remove(self, log: ServerLog) -> None:
        with self._lock:
            LOGGER.removeHandler(log)
            self._logs.remove(log)
            if not self._logs:
                LOGGER.removeHandler(self._others)
                LOGGER.setLevel(self._level)
                LOGGER.propagate = self._propagates

    def _begin(self) -> None:
        self._level, self._propagates = LOGGER.level, LOGGER.propagate
        self._others.setLevel(LOGGER.getEffectiveLevel())
        LOGGER.setLevel(LOGGER.getEffectiveLevel())
        if self._propagates:
            LOGGER.addHandler(self._others)
        # Otherwise all that the files want would reach the program's handlers as well.
        LOGGER.propagate = False


class _OthersHandler(logging.Handler):
    """Hands records on to the handlers above."""

    def emit(self, record: logging.LogRecord) -> None:
        if LOGGER.parent is not None:
            LOGGER.parent.callHandlers(record)


_FILE_HANDLERS: Final = _FileHandlers()
