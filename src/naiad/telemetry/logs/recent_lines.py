"""The last lines of the log, in memory."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, NamedTuple

MAX_LINES: Final = 500
MAX_CHARACTERS: Final = 2000
"""The most that is kept of a line; a table or a traceback is one line here."""


class LogLine(NamedTuple):
    """One line: its number since the start, from 1; its ``logging`` level; its text without the newline."""

    number: int
    level: int
    text: str


class RecentLines:
    """The last ``MAX_LINES`` lines. The log's handler holds its lock while it appends."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self.count = 0

    def append(self, level: int, line: str) -> None:
        """Keep a line, which may end in a newline."""
        self.count += 1
        self._lines.append(LogLine(self.count, level, line[:MAX_CHARACTERS].rstrip("\n")))

    def after(self, number: int) -> list[LogLine]:
        """The lines behind the one with this ``number``, oldest first; 0 for all that are kept."""
        lines = self._lines.copy()
        new = lines[-1].number - number if lines else 0
        return list(islice(lines, max(0, len(lines) - new), None)) if new > 0 else []
