"""A position in a text that comes in parts.

What reads such a text is a generator. It yields where it needs the next part, and is resumed when that was appended.
So it is written as if the whole text was there, and reads each character once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeVar

_T = TypeVar("_T")
Reading = Generator[None, None, _T]
"""Reads a text, waits for parts of it, and returns a value."""


class Cursor:
    """The position ``at`` in the last part ``text``, and a mark at an earlier position or the same."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self._ended = False
        self._mark = 0
        # From the mark to the beginning of ``text``.
        self._before: list[str] = []

    def append(self, part: str) -> None:
        """Add the next part of the text; readings that wait are to be resumed then."""
        if self._mark < self.at:
            self._before.append(self.text[self._mark : self.at])
        # A reading that waits has passed over everything, except for a few characters that it looks ahead.
        self.text = self.text[self.at :] + part
        self.at = self._mark = 0

    def end(self) -> None:
        """Note that the text has no further part."""
        self.append("")
        self._ended = True

    def mark(self) -> None:
        """Move the mark to the position."""
        self._mark = self.at
        self._before.clear()

    def since_mark(self) -> str:
        """The text from the mark to the position."""
        return "".join(self._before) + self.text[self._mark : self.at]

    def peek(self) -> Reading[str]:
        """The character at the position, "" at the end of the text."""
        while self.at == len(self.text) and not self._ended:
            yield
        return self.text[self.at : self.at + 1]

    def starts_with(self, word: str) -> Reading[bool]:
        """Whether ``word`` stands at the position; waits only while it may."""
        while True:
            ahead = self.text[self.at : self.at + len(word)]
            if ahead == word or self._ended or not word.startswith(ahead):
                return ahead == word
            yield

    def skip(self, pattern: re.Pattern[str]) -> None:
        """Pass over what fits ``pattern`` and is there already, if anything is."""
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def pass_over(self, pattern: re.Pattern[str]) -> Reading[None]:
        """Pass over all that fits ``pattern``, which describes any number of characters, also none."""
        while True:
            self.skip(pattern)
            if self.at < len(self.text) or self._ended:
                return
            yield

    def copy(self, reading: Reading[None], receive: Callable[[str], None]) -> Reading[None]:
        """Carry out a reading; ``receive`` gets the text that it passes over, part by part, also when it fails."""
        begin = self.at
        try:
            for _ in reading:
                receive(self.text[begin : self.at])
                begin = self.at
                yield
                # The text begins at the position now.
                begin = 0
        finally:
            receive(self.text[begin : self.at])

    def passed(self, reading: Reading[None]) -> Reading[str]:
        """Carry out a reading, and return the text that it passes over."""
        parts: list[str] = []
        yield from self.copy(reading, parts.append)
        return "".join(parts)
