"""Calls as Mistral's models write them, an array of objects or, by newer ones, names with arguments.

    [TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}]
    [TOOL_CALLS]f{"x": 1}[TOOL_CALLS]g{}
    [TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"x": 1}

The token may be missing before an array at the beginning of the text. A text may end without the closing bracket.

Source: the tokenizers' versions 3, 7, 11 and 13 of mistral-common, and the reference's parser for the array.
"""

from __future__ import annotations

import re
from typing import Final

from naiad.wire.openai.tool_calls.call_object import read_arguments
from naiad.wire.openai.tool_calls.call_scan import CallScan
from naiad.wire.openai.tool_calls.cursor import Reading
from naiad.wire.openai.tool_calls.json_value import MalformedCallError, pass_space, take

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]*")
_CALL_ID: Final = "[CALL_ID]"
_ID: Final = re.compile(r"[A-Za-z0-9]*")
_ARGUMENTS: Final = "[ARGS]"


class MistralScan(CallScan):
    """Reads the formats of Mistral."""

    TOKEN = "[TOOL_CALLS]"
    BEGINNING = "["
    ARGUMENT_KEYS = ("arguments",)

    def _read_calls(self) -> Reading[None]:
        first = yield from self._cursor.peek()
        if first == "[":
            yield from self._read_array()
        elif first == "{":
            yield from self._read_object()
        else:
            yield from self._read_named()

    def _read_array(self) -> Reading[None]:
        """Read objects in brackets."""
        separator = yield from take(self._cursor, "[")
        while separator not in ("]", ""):
            yield from pass_space(self._cursor)
            yield from self._read_object()
            yield from pass_space(self._cursor)
            separator = yield from self._pass_separator()
        self._cursor.mark()

    def _pass_separator(self) -> Reading[str]:
        """Pass over what separates or ends objects, and return it; "" for the end of the text."""
        if not (yield from self._cursor.peek()):
            return ""
        return (yield from take(self._cursor, ",", "]"))

    def _read_named(self) -> Reading[None]:
        """Read a name with arguments behind it."""
        cursor = self._cursor
        name = yield from cursor.passed(cursor.pass_over(_NAME))
        if not name:
            raise MalformedCallError
        yield from self._pass_marks()
        if (yield from cursor.peek()) != "{":
            raise MalformedCallError
        draft = self._draft()
        draft.set_name(name)
        yield from read_arguments(cursor, draft)
        draft.complete()

    def _pass_marks(self) -> Reading[None]:
        """Pass over what may stand between the name and the arguments."""
        cursor = self._cursor
        yield from pass_space(cursor)
        if (yield from cursor.starts_with(_CALL_ID)):
            cursor.at += len(_CALL_ID)
            yield from cursor.pass_over(_ID)
        if (yield from cursor.starts_with(_ARGUMENTS)):
            cursor.at += len(_ARGUMENTS)
        yield from pass_space(cursor)
