"""The log file: appended to, rotated by its size, and opened again when another program has moved it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Literal, TextIO

from naiad.telemetry.logs.sink import LogSink


class LogFile:
    """A file that lines are appended to. The caller sees to it that one thread uses it at a time.

    Once it would have more than ``max_bytes`` it is renamed to ``<path>.1``, a former ``<path>.1`` to ``<path>.2`` and
    so on; the oldest of ``backups`` renamed files is removed. Only regular files are rotated, not pipes or devices.

    Args:
        path: of the file.
        max_bytes: 0 for no rotation.
        backups: how many renamed files stay; with 0 the file itself is emptied.
        follows: whether another process renames the file: then each line goes to the file that has the path.
        dropped: makes the line for a number of lines that a full pipe did not take.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(
        self, path: str, max_bytes: int, backups: int, dropped: Callable[[int], str], *, follows: bool = False
    ) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._follows = follows
        self._notice = dropped
        self._open("a")

    def write(self, line: str) -> None:
        """Append ``line``, which ends in a newline."""
        if self._follows:
            self._follow()
        elif self._is_rotated:
            # Asked, not counted: other processes of the server may write into the file as well.
            size = os.fstat(self._file.fileno()).st_size
            # A file of one line is not rotated: a longer line than ``max_bytes`` gets a file of its own.
            if size and size + len(line.encode("utf-8", "backslashreplace")) > self._most_bytes:
                self._rotate(size)
        self.sink.write(line)

    def reopen(self) -> None:
        """Open the path again, so that a file which was renamed is left alone.

        Raises:
            OSError: that is not possible; the file from before stays in use.
        """
        old = self._file
        self._open("a")
        old.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self, mode: Literal["a", "w"]) -> None:
        file = open(self.path, mode, encoding="utf-8")  # noqa: SIM115
        found = os.fstat(file.fileno())
        self._file: TextIO = file
        self._identity = found.st_dev, found.st_ino
        self._most_bytes = self._max_bytes
        self._is_rotated = bool(self._max_bytes) and stat.S_ISREG(found.st_mode)
        self.sink = LogSink(file, self._notice)

    def _follow(self) -> None:
        try:
            found = os.stat(self.path)
            if (found.st_dev, found.st_ino) != self._identity:
                self.reopen()
        except OSError:
            # Renamed, and the next one is not there yet.
            return

    def _rotate(self, size: int) -> None:
        old = self._file
        try:
            for number in range(self._backups - 1, 0, -1):
                if os.path.exists(self._numbered(number)):
                    os.replace(self._numbered(number), self._numbered(number + 1))
            if self._backups:
                os.replace(self.path, self._numbered(1))
            self._open("a" if self._backups else "w")
        except OSError:
            # The folder may not be written any more: lines go on to the file that is open. The next attempt comes
            # ``max_bytes`` later, since each costs several calls of the system.
            self._most_bytes = size + self._max_bytes
            return
        old.close()

    def _numbered(self, number: int) -> str:
        return f"{self.path}.{number}"
