"""The written form of a configuration: its entries with their places in the file, before it is a message.

The readers of the three file formats each give a tree of ``Entry``; ``inspect.py`` holds it against the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MAX_DEPTH = 64
# Aliases of YAML count each time: a few lines of them could stand for billions of entries.
MAX_ENTRIES = 100_000


class ValueSyntax(Enum):
    """How a value is written: a message, a bare word or a quoted text of the text format, a value of JSON or YAML.

    ``EMPTY`` is the ``null`` and the empty list of JSON and YAML, which leave their field as it is.
    """

    MESSAGE = "message"
    TOKEN = "token"
    TEXT = "text"
    DATA = "data"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Entry:
    """One ``name: value`` of the file; a list gives one entry per element, ``listed``.

    ``line`` and ``column`` count from 1 and are those of the value. ``value`` is None for a message, whose fields are
    ``entries``.
    """

    name: str
    line: int
    column: int
    syntax: ValueSyntax
    value: object = None
    entries: tuple[Entry, ...] = ()
    listed: bool = False


class EntrySyntaxError(Exception):
    """The text does not follow its format; ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class Budget:
    """Counts entries and nesting, so that a small file cannot grow into a huge tree."""

    def __init__(self) -> None:
        self._entries = 0

    def take(self, depth: int, line: int, column: int) -> None:
        """Account for one entry at ``depth``.

        Raises:
            EntrySyntaxError: too many entries, or nested too deep.
        """
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise EntrySyntaxError(f"more than {MAX_ENTRIES} values, aliases counted", line, column)
        if depth > MAX_DEPTH:
            raise EntrySyntaxError(f"nested deeper than {MAX_DEPTH} levels", line, column)
