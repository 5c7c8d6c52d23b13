"""The log of a server in a program in a file, beside what the program's own handlers take."""

from __future__ import annotations

import logging

from naiad.telemetry.logs.server_log import LOGGER, ServerLog


class FileLog:
    """Writes the server's lines by the settings of a log; the program's handlers get those that they got before.

    Args:
        log: with a file.
    """

    def __init__(self, log: ServerLog) -> None:
        self._log = log
        self._before = LOGGER.level, LOGGER.propagate
        self._others = _OthersHandler(LOGGER.getEffectiveLevel())
        LOGGER.addHandler(log)
        LOGGER.addHandler(self._others)
        # Otherwise all that the file wants would reach the program's handlers as well.
        LOGGER.propagate = False
        LOGGER.setLevel(min(log.settings.lowest_level, LOGGER.getEffectiveLevel()))

    def close(self) -> None:
        """Log as before, and close the file."""
        for handler in (self._log, self._others):
            LOGGER.removeHandler(handler)
        level, LOGGER.propagate = self._before
        LOGGER.setLevel(level)
        self._log.close()


class _OthersHandler(logging.Handler):
    """Hands records on to the handlers above."""

    def emit(self, record: logging.LogRecord) -> None:
        if LOGGER.parent is not None:
            LOGGER.parent.callHandlers(record)
