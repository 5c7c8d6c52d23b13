"""What has been found in a text since somebody last took it."""

from __future__ import annotations

from naiad.wire.openai.tool_calls.calls import CallDelta, TextDelta


class FoundText:
    """Content and calls, joined into one delta.

    Attributes:
        call_count: how many calls were ever added.
    """

    def __init__(self) -> None:
        self.call_count = 0
        self._content: list[str] = []
        self._names: dict[int, str] = {}
        self._arguments: dict[int, list[str]] = {}

    def add_content(self, text: str) -> None:
        """Add what follows in the content, may be ""."""
        self._content.append(text)

    def add_call(self, name: str, arguments: str) -> None:
        """Add a call with what is known of its arguments."""
        self._names[self.call_count] = name
        self._arguments[self.call_count] = [arguments]
        self.call_count += 1

    def add_arguments(self, text: str) -> None:
        """Add what follows in the arguments of the last call, may be ""."""
        if text:
            self._arguments.setdefault(self.call_count - 1, []).append(text)

    def take(self) -> TextDelta:
        """All of it, which is then forgotten."""
        calls = tuple(
            CallDelta(index, self._names.get(index), "".join(arguments)) for index, arguments in self._arguments.items()
        )
        content = "".join(self._content)
        self._content.clear()
        self._names.clear()
        self._arguments.clear()
        return TextDelta(content, calls)
