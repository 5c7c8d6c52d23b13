"""Calls as Llama 3.1, 3.2 and 3.3 write them: JSON objects, one after the other.

    <|python_tag|>{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}

The token may be missing, "arguments" may stand for "parameters", and objects may be separated by a comma, by white
space or by nothing. Some servers let a model go on behind its calls with the head of a further message, which it
invents: that is left out with all that follows.

Source: the prompt format of Llama 3.1, and the reference's parser for it.
"""

from __future__ import annotations

import re
from typing import Final

from naiad.wire.openai.tool_calls.call_scan import CallScan
from naiad.wire.openai.tool_calls.cursor import Reading
from naiad.wire.openai.tool_calls.json_value import pass_space

_NEXT_MESSAGE: Final = "assistant\n\n"
_ANYTHING: Final = re.compile(r".*", re.DOTALL)


class Llama3Scan(CallScan):
    """Reads the format of Llama 3."""

    TOKEN = "<|python_tag|>"
    BEGINNING = "{"
    ARGUMENT_KEYS = ("parameters", "arguments")

    def _read_calls(self) -> Reading[None]:
        yield from self._read_object()
        yield from self._pass_separator()
        while (yield from self._cursor.peek()) == "{":
            yield from self._read_object()
            yield from self._pass_separator()
        if (yield from self._cursor.starts_with(_NEXT_MESSAGE)):
            yield from self._cursor.pass_over(_ANYTHING)

    def _pass_separator(self) -> Reading[None]:
        yield from pass_space(self._cursor)
        if (yield from self._cursor.peek()) in (";", ","):
            self._cursor.at += 1
            yield from pass_space(self._cursor)
