"""Reads a configuration written as JSON into entries that know their lines.

The values come from the standard library's parser; this reader finds places, and keys that are given twice, which that
parser lets pass.
"""

from __future__ import annotations

import bisect
import json
import re

from naiad.config.parsing.entries import Budget, Entry, EntrySyntaxError, ValueSyntax

# Takes any bare word or number: the standard parser then says what is wrong with it.
_TOKEN = re.compile(r'[ \t\r\n]*("(?:[^"\\]|\\.)*"|[-+]?[A-Za-z0-9.][A-Za-z0-9.+-]*|[{}\[\]:,])', re.DOTALL)


def read_json_entries(text: str) -> tuple[Entry, ...]:
    """The members of the JSON object ``text``; an empty text has none.

    Raises:
        EntrySyntaxError: not JSON, not an object, a key given twice, or nested too deep.
    """
    if not text.strip():
        return ()
    reader = _JsonReader(text)
    try:
        top = reader.value("", 0, listed=False)
    except (ValueError, RecursionError) as error:
        raise _syntax_error(text, error) from None
    reader.check_end()
    if len(top) != 1 or top[0].syntax is not ValueSyntax.MESSAGE:
        raise EntrySyntaxError("expected a JSON object: { ... }", 1, 1)
    return top[0].entries


def _syntax_error(text: str, found: Exception) -> EntrySyntaxError:
    """The standard parser's words where it objects too."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return EntrySyntaxError(error.msg, error.lineno, error.colno)
    return EntrySyntaxError(str(found), 1, 1)


class _JsonReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._offset = 0
        self._lines = [0, *(m.end() for m in re.finditer("\n", text))]
        self._budget = Budget()

    def value(self, name: str, depth: int, *, listed: bool) -> list[Entry]:
        """The value that comes next, under ``name``; a list gives as many entries as it has elements."""
        token, line, column = self._take()
        self._budget.take(depth, line, column)
        if token == "{":
            return [Entry(name, line, column, ValueSyntax.MESSAGE, None, self._members(depth), listed)]
        if token == "[":
            if listed:
                raise EntrySyntaxError("found a list inside a list, expected one list", line, column)
            return self._elements(name, depth) or [Entry(name, line, column, ValueSyntax.EMPTY)]
        value = json.loads(token)
        syntax = ValueSyntax.EMPTY if value is None else ValueSyntax.DATA
        return [Entry(name, line, column, syntax, value, (), listed)]

    def check_end(self) -> None:
        """Check that nothing follows."""
        if self._text[self._offset :].strip():
            line, column = self._place(self._offset)
            raise EntrySyntaxError("unexpected text after the end of the JSON object", line, column)

    def _members(self, depth: int) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        seen: set[str] = set()
        if self._skips("}"):
            return ()
        while True:
            key, line, column = self._take()
            name = json.loads(key)
            if not isinstance(name, str):
                raise ValueError(f"a key must be a text, found {key}")
            if name in seen:
                raise EntrySyntaxError(f"the key '{name}' is given twice", line, column)
            seen.add(name)
            self._need(":")
            entries += self.value(name, depth + 1, listed=False)
            if self._skips("}"):
                return tuple(entries)
            self._need(",")

    def _elements(self, name: str, depth: int) -> list[Entry]:
        entries: list[Entry] = []
        if self._skips("]"):
            return entries
        while True:
            entries += self.value(name, depth + 1, listed=True)
            if self._skips("]"):
                return entries
            self._need(",")

    def _take(self) -> tuple[str, int, int]:
        match = _TOKEN.match(self._text, self._offset)
        if match is None:
            raise ValueError("expected a value")
        self._offset = match.end()
        return match.group(1), *self._place(match.start(1))

    def _skips(self, mark: str) -> bool:
        match = _TOKEN.match(self._text, self._offset)
        if match is None or match.group(1) != mark:
            return False
        self._offset = match.end()
        return True

    def _need(self, mark: str) -> None:
        if not self._skips(mark):
            raise ValueError(f"expected '{mark}'")

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1
