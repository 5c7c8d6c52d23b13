"""Finds content and calls in a text; what all formats share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar

from naiad.wire.openai.tool_calls.call_object import read_call_object
from naiad.wire.openai.tool_calls.cursor import Cursor, Reading
from naiad.wire.openai.tool_calls.draft import Draft
from naiad.wire.openai.tool_calls.found_text import FoundText
from naiad.wire.openai.tool_calls.json_value import MalformedCallError, pass_space


class CallScan(ABC):
    """Reads the text of a cursor into ``found``.

    Calls begin behind the format's token, wherever it stands. A server may leave the token out of the text, so they
    begin without it at the beginning of the text, too. What lies behind the cursor's mark is neither content nor call
    yet.
    """

    TOKEN: ClassVar[str]
    """What the model writes before calls."""
    BEGINNING: ClassVar[str]
    """The first character of calls whose token was left out."""
    ARGUMENT_KEYS: ClassVar[Collection[str]]
    """The members that may have the arguments of a call."""

    def __init__(self, cursor: Cursor, found: FoundText, eager: bool) -> None:
        self._cursor = cursor
        self._found = found
        self._eager = eager

    @abstractmethod
    def _read_calls(self) -> Reading[None]:
        """Read the calls that follow, and leave the mark behind the last one that is complete.

        Raises:
            MalformedCallError: what is behind the mark is no call.
        """

    def read_text(self) -> Reading[None]:
        """Read all of the text. Raises nothing."""
        is_call = yield from self._starts_with_call()
        while is_call or (yield from self._read_content()):
            is_call = yield from self._try_calls()

    def _starts_with_call(self) -> Reading[bool]:
        yield from pass_space(self._cursor)
        if (yield from self._cursor.peek()) == self.BEGINNING:
            return True
        return (yield from self._cursor.starts_with(self.TOKEN))

    def _read_content(self) -> Reading[bool]:
        """Read content up to the next token; False: there is none."""
        cursor = self._cursor
        self._add_content()
        while not (yield from cursor.starts_with(self.TOKEN)):
            if cursor.at == len(cursor.text):
                return False
            following = cursor.text.find(self.TOKEN[0], cursor.at + 1)
            cursor.at = following if following >= 0 else len(cursor.text)
            self._add_content()
        return True

    def _add_content(self) -> None:
        self._found.add_content(self._cursor.since_mark())
        self._cursor.mark()

    def _try_calls(self) -> Reading[bool]:
        """Read calls, if it is calls; returns whether a token follows at once."""
        try:
            yield from self._pass_tokens()
            yield from self._read_calls()
        except MalformedCallError:
            return False
        yield from pass_space(self._cursor)
        if not (yield from self._cursor.peek()):
            self._cursor.mark()
        return (yield from self._cursor.starts_with(self.TOKEN))

    def _pass_tokens(self) -> Reading[None]:
        while (yield from self._cursor.starts_with(self.TOKEN)):
            self._cursor.at += len(self.TOKEN)
            yield from pass_space(self._cursor)

    def _draft(self) -> Draft:
        return Draft(self._cursor, self._found, self._eager)

    def _read_object(self) -> Reading[None]:
        """Read the call at the position, which is a JSON object."""
        yield from read_call_object(self._cursor, self._draft(), self.ARGUMENT_KEYS)
