"""A turn of a chat: its messages are sent behind those of the turns before it and of their replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from naiad.perf.target.http_request import HttpRequestBytes
from naiad.perf.target.protocol import Problem
from naiad.perf.target.services.body_service import WholeStep

_BAD: Final = "bad response"
_PREFIX: Final = b"data:"


class ChatStep(WholeStep[HttpRequestBytes]):
    """A payload with a list of messages.

    Args:
        payload: the whole payload.
        delay_ms: how long its session rests after the response.
        encode: makes a request of a body.
    """

    __slots__ = ("_encode", "_payload", "delay_ms")

    def __init__(
        self,
        plain: HttpRequestBytes,
        payload: Mapping[str, Any],
        delay_ms: float,
        encode: Callable[[bytes], HttpRequestBytes],
    ) -> None:
        super().__init__(plain)
        self.delay_ms = delay_ms
        self._payload = payload
        self._encode = encode

    def in_session(self, history: list[Any]) -> HttpRequestBytes:
        """The turn behind everything that was said before; ``history`` gets the messages of the payload."""
        history += self._payload["messages"]
        return self._encode(orjson.dumps({**self._payload, "messages": history}))

    def take_reply(self, request: HttpRequestBytes, history: list[Any]) -> Problem | None:
        """Read the message of the response into ``history``; gives what is wrong with it."""
        body = request.body
        message = _streamed_message(body) if self._payload.get("stream") else _whole_message(body)
        if message is None:
            return _BAD, "the response has no message in its first choice, which the next turn of the session needs"
        history.append(message)
        return None


def _whole_message(body: bytes) -> Any | None:
    try:
        message = orjson.loads(body)["choices"][0]["message"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    return message if isinstance(message, dict) else None


def _streamed_message(body: bytes) -> dict[str, str] | None:
    """The text of all events as one message; None where no event has any."""
    texts = list(_texts(body))
    return {"role": "assistant", "content": "".join(texts)} if texts else None


def _texts(body: bytes) -> Iterator[str]:
    for line in body.splitlines():
        if not line.startswith(_PREFIX):
            continue
        try:
            text = orjson.loads(line[len(_PREFIX) :])["choices"][0]["delta"]["content"]
        except (orjson.JSONDecodeError, LookupError, TypeError):
            # The mark of the end, the counts of tokens, and events without text.
            continue
        if isinstance(text, str):
            yield text
