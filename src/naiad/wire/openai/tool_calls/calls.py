"""Tool calls that a language model writes into its text, and what reads them out of it.

The arguments of a call are the JSON text exactly as the model wrote it, spaces included, whether the text is read whole
or in parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class ToolCall(NamedTuple):
    """One call that was read from a whole text.

    Attributes:
        name: of the function, never empty.
        arguments: a JSON text, mostly an object; exactly as the model wrote it.
    """

    name: str
    arguments: str


class ParsedText(NamedTuple):
    """A whole text as content and calls.

    Attributes:
        content: what is no part of a call, "" where there is nothing. Tokens, brackets, separators and white space
            around calls are no content.
        calls: in the order of the text. Empty: the text has no call, and ``content`` is the whole text.
    """

    content: str
    calls: tuple[ToolCall, ...]


class CallDelta(NamedTuple):
    """What a part of a text adds to one call.

    Attributes:
        index: of the call in the response, from 0.
        name: of the function with the first delta of a call, else None.
        arguments: what follows in the JSON text, may be "".
    """

    # In the place of the method of tuples, which nobody needs here.
    index: int  # type: ignore[assignment]
    name: str | None
    arguments: str


class TextDelta(NamedTuple):
    """What a part of a text adds to the response; both members are empty where nothing can be said yet.

    Attributes:
        content: what follows in the content.
        calls: at most one delta for each call, in the order of the calls.
    """

    content: str
    calls: tuple[CallDelta, ...]


class StreamedCalls(Protocol):
    """Reads one response that comes in parts, in time that grows with the text alone, not with the number of parts."""

    def feed(self, text: str) -> TextDelta:
        """Read the next part, which may be cut anywhere and may be empty."""

    def finish(self) -> TextDelta:
        """What was held back when the text ends, such as the beginning of a call that did not become one."""

    @property
    def has_calls(self) -> bool:
        """Whether a call was begun; the finish reason is "tool_calls" then."""


class ToolCallFormat(NamedTuple):
    """How the models of one family write calls.

    Attributes:
        read: reads a whole text. JSON that is malformed or has no end is content.
        stream: begins a response that comes in parts. It adds up to what ``read`` finds, with one exception: a call was
            announced before its JSON turned out to be malformed or to have no end. It remains a call then, with the
            arguments up to that point, and what follows is content.
    """

    read: Callable[[str], ParsedText]
    stream: Callable[[], StreamedCalls]
