"""A response that is read part by part, and a whole text as a response in one part."""

from __future__ import annotations

from naiad.wire.openai.tool_calls.call_scan import CallScan
from naiad.wire.openai.tool_calls.calls import ParsedText, TextDelta, ToolCall
from naiad.wire.openai.tool_calls.cursor import Cursor
from naiad.wire.openai.tool_calls.found_text import FoundText


class CallStream:
    """Reads one response with a format's scan (``StreamedCalls``).

    Args:
        scan: of the format.
        eager: whether calls are announced before they are complete.
    """

    def __init__(self, scan: type[CallScan], eager: bool = True) -> None:
        self._cursor = Cursor()
        self._found = FoundText()
        self._reading = scan(self._cursor, self._found, eager).read_text()

    def feed(self, text: str) -> TextDelta:
        """Read the next part, which may be cut anywhere and may be empty."""
        self._cursor.append(text)
        return self._read_on()

    def finish(self) -> TextDelta:
        """What was held back when the text ends, such as the beginning of a call that did not become one."""
        self._cursor.end()
        return self._read_on()

    @property
    def has_calls(self) -> bool:
        """Whether a call was begun; the finish reason is "tool_calls" then."""
        return self._found.call_count > 0

    def _read_on(self) -> TextDelta:
        next(self._reading, None)
        return self._found.take()


def read_text(scan: type[CallScan], text: str) -> ParsedText:
    """A whole text as content and calls, of which all are complete."""
    stream = CallStream(scan, eager=False)
    deltas = (stream.feed(text), stream.finish())
    calls = tuple(ToolCall(call.name or "", call.arguments) for delta in deltas for call in delta.calls)
    return ParsedText("".join(delta.content for delta in deltas), calls)
