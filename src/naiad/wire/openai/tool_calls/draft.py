"""One call while it is read."""

from __future__ import annotations

from naiad.wire.openai.tool_calls.cursor import Cursor
from naiad.wire.openai.tool_calls.found_text import FoundText
from naiad.wire.openai.tool_calls.json_value import MalformedCallError


class Draft:
    """Collects name and arguments, and adds the call to what was found.

    With ``eager`` it announces the call when its name is known and its arguments have begun, otherwise it adds it when
    it is complete. The cursor's mark is moved over all that was added: what lies behind the mark is content if the call
    turns out to be malformed.
    """

    def __init__(self, cursor: Cursor, found: FoundText, eager: bool) -> None:
        self._cursor = cursor
        self._found = found
        self._eager = eager
        self._name = ""
        self._has_arguments = False
        self._is_announced = False
        self._early: list[str] = []

    @property
    def has_name(self) -> bool:
        """Whether the name is known."""
        return bool(self._name)

    @property
    def has_arguments(self) -> bool:
        """Whether the arguments have begun."""
        return self._has_arguments

    def set_name(self, name: str) -> None:
        """Note the name, which is not empty."""
        self._name = name
        self._announce()

    def begin_arguments(self) -> None:
        """Note that the arguments begin at the position."""
        self._has_arguments = True
        self._announce()

    def add_arguments(self, text: str) -> None:
        """Add what follows in the arguments and ends at the position."""
        if self._is_announced:
            self._found.add_arguments(text)
            self._cursor.mark()
        else:
            self._early.append(text)

    def complete(self) -> None:
        """Note that the call ends at the position.

        Raises:
            MalformedCallError: it lacks a name or arguments.
        """
        if not (self._name and self._has_arguments):
            raise MalformedCallError
        if not self._is_announced:
            self._found.add_call(self._name, "".join(self._early))
        self._cursor.mark()

    def _announce(self) -> None:
        if self._eager and self._name and self._has_arguments:
            self._is_announced = True
            self._found.add_call(self._name, "".join(self._early))
            self._cursor.mark()
