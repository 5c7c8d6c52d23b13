"""Reads the protobuf text format (config.pbtxt) into entries that know their lines.

The message itself comes from protobuf's own parser; this reader finds places. It takes the part of the format that a
model configuration can use (no extensions, no ``Any``) and calls everything else a syntax error.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Container
from typing import NamedTuple

from naiad.config.parsing.entries import Budget, Entry, EntrySyntaxError, ValueSyntax

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f\v]+|\#[^\n]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<word>[-+]?[ \t]*[A-Za-z0-9_.][A-Za-z0-9_.+-]*)
      | (?P<mark>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
# Several words in front of a value, a message or a list.
_SPACED = re.compile(r"([a-z]+(?:[ \t]+[a-z]+)+)(?=[ \t]*[:{<\[])")
_CLOSING = {"{": "}", "<": ">"}
_BRACKETS = {**_CLOSING, "[": "]"}


class _Token(NamedTuple):
    kind: str
    text: str
    offset: int


def read_text_entries(text: str) -> tuple[Entry, ...]:
    """The fields of the top message of ``text``.

    Raises:
        EntrySyntaxError: the text is not in the text format.
    """
    return _TextReader(text).fields("")


def misplaced_bracket(text: str) -> str:
    """The unmatched bracket of ``text``, with its line; "" when all match."""
    opened: list[tuple[str, int]] = []
    line = 1
    offset = 0
    while match := _TOKEN.match(text, offset):
        mark = match.group()
        if mark in _BRACKETS:
            opened.append((mark, line))
        elif mark in _BRACKETS.values():
            if not opened:
                return f"the '{mark}' of line {line} closes nothing"
            opening, at = opened.pop()
            if _BRACKETS[opening] != mark:
                return f"the '{opening}' of line {at} is not closed before the '{mark}' of line {line}"
        line += mark.count("\n")
        offset = match.end()
    # Something else is wrong where the tokens end early, in a text without its second quote say.
    return f"the '{opened[-1][0]}' of line {opened[-1][1]} is not closed" if opened and offset == len(text) else ""


def split_name(text: str, line: int, known: Container[str]) -> str:
    """The field that ``line`` (from 1) writes in several words, such as ``instance group``; "" when there is none."""
    lines = text.splitlines()
    found = _SPACED.findall(lines[line - 1]) if 0 < line <= len(lines) else []
    return next((name for words in found if (name := "_".join(words.split())) in known), "")


class _TextReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._scan()
        self._next = 0
        self._lines = [0, *(m.end() for m in re.finditer("\n", text))]
        self._budget = Budget()

    def fields(self, closing: str, depth: int = 0) -> tuple[Entry, ...]:
        """Entries up to ``closing``, which is taken as well ("" for the end of the text)."""
        entries: list[Entry] = []
        while not self._closes(closing):
            name = self._take("word").text
            entries += self._values(name, depth + 1)
            if self._peek().text in (",", ";"):
                self._next += 1
        return tuple(entries)

    def _closes(self, closing: str) -> bool:
        token = self._peek()
        if closing == "" and token.kind == "end":
            return True
        if closing and token.text == closing and token.kind == "mark":
            self._next += 1
            return True
        return False

    def _values(self, name: str, depth: int) -> list[Entry]:
        # The format lets a message stand without it; elsewhere protobuf's own parser misses it.
        if self._peek().text == ":":
            self._next += 1
        if self._peek().text != "[" or self._peek().kind != "mark":
            return [self._value(name, depth, listed=False)]
        self._next += 1
        values: list[Entry] = []
        while not self._closes("]"):
            values.append(self._value(name, depth, listed=True))
            if self._peek().text == ",":
                self._next += 1
        return values

    def _value(self, name: str, depth: int, *, listed: bool) -> Entry:
        token = self._peek()
        line, column = self._place(token.offset)
        self._budget.take(depth, line, column)
        if token.kind == "mark" and token.text in _CLOSING:
            self._next += 1
            entries = self.fields(_CLOSING[token.text], depth)
            return Entry(name, line, column, ValueSyntax.MESSAGE, None, entries, listed)
        if token.kind == "text":
            return Entry(name, line, column, ValueSyntax.TEXT, self._joined_text(), (), listed)
        return Entry(name, line, column, ValueSyntax.TOKEN, self._take("word").text, (), listed)

    def _joined_text(self) -> str:
        parts = []
        # The format joins adjacent texts, as C does.
        while self._peek().kind == "text":
            parts.append(self._take("text").text[1:-1])
        return "".join(parts)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, kind: str) -> _Token:
        token = self._peek()
        if token.kind != kind:
            raise self._error(f"expected a {kind}, found {token.text or 'the end of the file'!r}", token.offset)
        self._next += 1
        return token

    def _scan(self) -> list[_Token]:
        tokens: list[_Token] = []
        offset = 0
        while offset < len(self._text):
            match = _TOKEN.match(self._text, offset)
            if match is None:
                raise self._error(f"unexpected character {self._text[offset]!r}", offset)
            if match.lastgroup != "space":
                tokens.append(_Token(str(match.lastgroup), match.group(), offset))
            offset = match.end()
        tokens.append(_Token("end", "", offset))
        return tokens

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def _error(self, message: str, offset: int) -> EntrySyntaxError:
        # Without ``_lines``, which is not made yet when ``_scan`` fails.
        line = self._text.count("\n", 0, offset) + 1
        return EntrySyntaxError(message, line, offset - (self._text.rfind("\n", 0, offset) + 1) + 1)
