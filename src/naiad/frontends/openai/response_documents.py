"""The documents of one response, as the model generates it: a completion, or a turn of a chat."""

from __future__ import annotations

from typing import Any, Protocol

from naiad.wire.openai.chat_request import ChatRequest
from naiad.wire.openai.documents import (
    DocumentHead,
    chat_choice,
    chat_part,
    completion_choice,
    first_part,
)
from naiad.wire.openai.generated import Generated, TokenUsage
from naiad.wire.openai.tool_calls.calls import CallDelta, StreamedCalls, TextDelta, ToolCall, ToolCallFormat

Document = dict[str, Any]


class ResponseDocuments(Protocol):
    """Makes the documents of one response.

    Attributes:
        is_cut: the rest of the text is not looked at, so the model should stop.
    """

    is_cut: bool

    def whole(self, generated: Generated) -> Document:
        """The only document, of a whole text."""

    def begin(self) -> list[Document]:
        """The documents before the first part."""

    def part(self, generated: Generated, final: bool) -> list[Document]:
        """The documents of a part; ``final``: no other part follows."""

    def usage(self, usage: TokenUsage) -> Document:
        """The document behind the last part, with the numbers of tokens."""


class CompletionDocuments:
    """Those of a completion."""

    def __init__(self, head: DocumentHead) -> None:
        self.is_cut = False
        self._head = head
        self._offset = 0

    def whole(self, generated: Generated) -> Document:
        choice = completion_choice(generated.text, generated.finish_reason or "stop", generated.logprobs)
        return self._document([choice], generated.usage)

    def begin(self) -> list[Document]:
        return []

    def part(self, generated: Generated, final: bool) -> list[Document]:
        reason = (generated.finish_reason or "stop") if final else ""
        choice = completion_choice(generated.text, reason, generated.logprobs, self._offset)
        self._offset += len(generated.text)
        return [self._document([choice], None)]

    def usage(self, usage: TokenUsage) -> Document:
        return self._document([], usage)

    def _document(self, choices: list[Document], usage: TokenUsage | None) -> Document:
        return self._head.document("text_completion", choices, usage)


class ChatDocuments:
    """Those of a turn of a chat.

    Args:
        request: what the caller wants.
        calls: reads calls of tools in the text; None for a text that is taken as it is.
        max_call_bytes: the most bytes of a text in parts in which calls are looked for.
    """

    def __init__(
        self, head: DocumentHead, request: ChatRequest, calls: ToolCallFormat | None, max_call_bytes: int
    ) -> None:
        self.is_cut = False
        self._head = head
        self._forced = request.forced
        self._calls = calls
        self._stream: StreamedCalls | None = None if calls is None else calls.stream()
        self._room = max_call_bytes
        self._parts = 0

    def whole(self, generated: Generated) -> Document:
        text = generated.text
        calls: tuple[ToolCall, ...] = ()
        if self._forced:
            text, calls = "", (ToolCall(self._forced, generated.text),)
        elif self._calls is not None:
            text, calls = self._calls.read(generated.text)
        # A forced call ends as any other text, in the reference too.
        reason = "tool_calls" if calls and not self._forced else generated.finish_reason or "stop"
        choice = chat_choice(text, calls, reason, generated.logprobs, self._head.id)
        return self._head.document("chat.completion", [choice], generated.usage)

    def begin(self) -> list[Document]:
        return [self._chunk([first_part()])]

    def part(self, generated: Generated, final: bool) -> list[Document]:
        self.is_cut = self._is_too_long(generated.text)
        if self.is_cut:
            return [self._chunk([chat_part("", (), "length", None, self._head.id)])]
        reason = (generated.finish_reason or "stop") if final else ""
        delta = self._delta(generated.text, final)
        if final and self._stream is not None and self._stream.has_calls:
            reason = "tool_calls"
        # Nothing can be said yet of what may be the beginning of a call.
        if self._stream is not None and not (delta.content or delta.calls or final or generated.logprobs):
            return []
        text = None if delta.calls and not delta.content else delta.content
        return [self._chunk([chat_part(text, delta.calls, reason, generated.logprobs, self._head.id)])]

    def _is_too_long(self, text: str) -> bool:
        """Count the text in which calls are looked for."""
        if self._stream is None:
            return False
        self._room -= len(text.encode())
        return self._room < 0

    def _delta(self, text: str, final: bool) -> TextDelta:
        if self._forced:
            return TextDelta("", (self._forced_part(text),))
        return TextDelta(text, ()) if self._stream is None else self._read_calls(self._stream, text, final)

    def _forced_part(self, text: str) -> CallDelta:
        self._parts += 1
        return CallDelta(0, self._forced if self._parts == 1 else None, text)

    def _read_calls(self, stream: StreamedCalls, text: str, final: bool) -> TextDelta:
        delta = stream.feed(text)
        if not final:
            return delta
        rest = stream.finish()
        return TextDelta(delta.content + rest.content, delta.calls + rest.calls)

    def usage(self, usage: TokenUsage) -> Document:
        return self._chunk([], usage)

    def _chunk(self, choices: list[Document], usage: TokenUsage | None = None) -> Document:
        return self._head.document("chat.completion.chunk", choices, usage)
