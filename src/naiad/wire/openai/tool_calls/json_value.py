"""Passes over JSON in a text that comes in parts, and finds where it is malformed.

Nothing is made of the values: only where they end is of interest. Nesting costs memory alone, no calls in calls.

Source: RFC 8259.
"""

from __future__ import annotations

import re
from typing import Final

from naiad.wire.openai.tool_calls.cursor import Cursor, Reading

SPACE: Final = re.compile(r"[ \t\r\n]*")
VALUE_BEGINNINGS: Final = frozenset('{["-0123456789tfn')
_STRING_CHARACTERS: Final = r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_WORD_CHARACTERS: Final = re.compile(r"[-+.0-9A-Za-z]*")
_WORD: Final = r"(?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+)"
_STRING: Final = f'"{_STRING_CHARACTERS}"'
_GAP: Final = r"[ \t\r\n]*+"
_KEY: Final = f"{_STRING}{_GAP}:{_GAP}"
_SCALAR: Final = rf"(?:{_STRING}|{_WORD}(?=[ \t\r\n,\]}}]))"
_FLAT_OBJECT: Final = rf"\{{{_GAP}(?:{_KEY}{_SCALAR}{_GAP}(?:,{_GAP}{_KEY}{_SCALAR}{_GAP})*+)?\}}"
_FLAT_ARRAY: Final = rf"\[{_GAP}(?:{_SCALAR}{_GAP}(?:,{_GAP}{_SCALAR}{_GAP})*+)?\]"
_FLAT: Final = f"(?:{_SCALAR}|{_FLAT_OBJECT}|{_FLAT_ARRAY})"
_CHARACTERS: Final = re.compile(_STRING_CHARACTERS)
_FULL_WORD: Final = re.compile(_WORD)
_SIMPLE_REST: Final = {
    "{": re.compile(f"(?:{_GAP},{_GAP}{_KEY}{_FLAT})*+"),
    "[": re.compile(f"(?:{_GAP},{_GAP}{_FLAT})*+"),
}
"""By the bracket, what may follow an element: further ones without much nesting. It is a fast path over most of a text.
What is cut at the end of a part, or is malformed, is left for the general one."""
_ESCAPES: Final = frozenset('"\\/bfnrtu')
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_CLOSING: Final = {"{": "}", "[": "]"}


class MalformedCallError(Exception):
    """The text is no call; the cursor is where that is known. Never leaves this package."""


def take(cursor: Cursor, *characters: str) -> Reading[str]:
    """Pass over the next character, which has to be one of these, and return it."""
    found = yield from cursor.peek()
    if found not in characters:
        raise MalformedCallError
    cursor.at += 1
    return found


def pass_space(cursor: Cursor) -> Reading[None]:
    """Pass over white space, if there is any."""
    yield from cursor.pass_over(SPACE)


def pass_value(cursor: Cursor) -> Reading[None]:
    """Pass over one value."""
    open_brackets: list[str] = []
    yield from _pass_beginning(cursor, open_brackets)
    while open_brackets:
        cursor.skip(_SIMPLE_REST[open_brackets[-1]])
        yield from pass_space(cursor)
        closing = _CLOSING[open_brackets[-1]]
        if (yield from take(cursor, ",", closing)) == closing:
            open_brackets.pop()
            continue
        yield from pass_space(cursor)
        if open_brackets[-1] == "{":
            yield from _pass_key(cursor)
        yield from _pass_beginning(cursor, open_brackets)


def _pass_beginning(cursor: Cursor, open_brackets: list[str]) -> Reading[None]:
    """Pass over a value without elements, or over the brackets before the first such value in it."""
    while True:
        first = yield from cursor.peek()
        if first == '"':
            return (yield from pass_string(cursor))
        if first not in _CLOSING:
            return (yield from _pass_word(cursor))
        cursor.at += 1
        yield from pass_space(cursor)
        if (yield from cursor.peek()) == _CLOSING[first]:
            cursor.at += 1
            return None
        open_brackets.append(first)
        if first == "{":
            yield from _pass_key(cursor)


def _pass_key(cursor: Cursor) -> Reading[None]:
    yield from pass_string(cursor)
    yield from pass_colon(cursor)


def pass_colon(cursor: Cursor) -> Reading[None]:
    """Pass over the colon behind a key, with the white space around it."""
    yield from pass_space(cursor)
    yield from take(cursor, ":")
    yield from pass_space(cursor)


def pass_string(cursor: Cursor) -> Reading[None]:
    """Pass over one string with its quotes."""
    yield from take(cursor, '"')
    while True:
        yield from cursor.pass_over(_CHARACTERS)
        if (yield from take(cursor, '"', "\\")) == '"':
            return
        if (yield from take(cursor, *_ESCAPES)) == "u":
            for _ in range(4):
                yield from take(cursor, *_HEX)


def _pass_word(cursor: Cursor) -> Reading[None]:
    """Pass over a number, or over true, false or null."""
    word = yield from cursor.passed(cursor.pass_over(_WORD_CHARACTERS))
    if not _FULL_WORD.fullmatch(word):
        raise MalformedCallError
