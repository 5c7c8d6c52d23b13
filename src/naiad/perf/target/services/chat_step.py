"""Turns of a chat session: each request holds all the messages before it, and what the service replied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from naiad.perf.steps import Step
from naiad.perf.target.http_request import HttpRequestBytes
from naiad.perf.target.services.body_service import WholeStep

Message = dict[str, Any]


class ChatStep(WholeStep[HttpRequestBytes]):
    """A payload by itself, or as a turn of a session.

    Args:
        write: makes the request of a payload.
        is_streaming: whether responses are events of a stream.

    Attributes:
        session_id: the session that it belongs to; empty for none.
        delay_ns: between its response and the next turn.
        messages: its own; None if the payload has no list of them.
    """

    __slots__ = ("_is_streaming", "_payload", "_write", "delay_ns", "messages", "session_id")

    def __init__(
        self,
        step: Step,
        payload: Message,
        write: Callable[[Message], HttpRequestBytes],
        *,
        is_streaming: bool,
    ) -> None:
        super().__init__(write(payload))
        self.session_id = step.session_id
        self.delay_ns = int(step.delay_ms * 1e6)
        messages = payload.get("messages")
        self.messages: list[Message] | None = messages if isinstance(messages, list) else None
        self._payload = payload
        self._write = write
        self._is_streaming = is_streaming

    def turn(self, history: Sequence[Message]) -> HttpRequestBytes:
        """The request with all messages of the session so far, its own at the end."""
        return self._write({**self._payload, "messages": list(history)})

    def reply(self, responses: Sequence[tuple[bytes, int]]) -> Message:
        """The message of the service.

        Args:
            responses: as ``HttpRequestBytes.last_response``: one, or the events of a stream.
        """
        choices = [choice for body, _ in responses for choice in _choices(body)]
        if not self._is_streaming:
            found: Message = next(
                (choice["message"] for choice in choices if isinstance(choice.get("message"), dict)), {}
            )
            calls = {"tool_calls": found["tool_calls"]} if found.get("tool_calls") else {}
            return {"role": found.get("role") or "assistant", "content": found.get("content"), **calls}
        texts = [choice["delta"].get("content") for choice in choices if isinstance(choice.get("delta"), dict)]
        return {"role": "assistant", "content": "".join(text for text in texts if isinstance(text, str))}


def _choices(body: bytes) -> list[Message]:
    try:
        found = orjson.loads(body).get("choices")
    except (orjson.JSONDecodeError, AttributeError):
        return []
    return [choice for choice in found if isinstance(choice, dict)] if isinstance(found, list) else []
