"""What language models answer over HTTP: what counts as output in a stream of events, and in a whole response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from naiad.perf.target.protocol import Problem
from naiad.perf.target.services.failures import error_text

_DONE: Final = b"[DONE]"
_PREFIX: Final = b"data:"
_NOT_OUTPUT: Final = frozenset({"role"})
CHAT: Final = "chat/completions"
COMPLETIONS: Final = "completions"
GENERATE_STREAM: Final = "generate_stream"
_BAD: Final = "bad response"


def output_counter(endpoint: str) -> type[EventStream] | None:
    """How the streams of a path are read; None for one whose streams have no known form."""
    path = endpoint.partition("?")[0].rstrip("/")
    if path.endswith(CHAT):
        return ChatStream
    if path.endswith(COMPLETIONS):
        return CompletionStream
    return GeneratedStream if path.endswith(GENERATE_STREAM) else None


class EventStream:
    """Reads server-sent events as they arrive.

    Attributes:
        outputs: events with output so far.
        fresh: the data of those that the last call of ``feed`` has found.
        tokens: of the output as the server counted them; None while it has not said.
        problem: the first failure that an event names.
        is_complete: whether an event has said that the output ends.
    """

    def __init__(self) -> None:
        self.outputs = 0
        self.fresh: list[bytes] = []
        self.tokens: int | None = None
        self.problem: Problem | None = None
        self.is_complete = False
        self._at = 0

    @property
    def output_tokens(self) -> int:
        """The tokens of the output: as the server counted them, else one for each event with output."""
        return self.outputs if self.tokens is None else self.tokens

    def feed(self, arrived: bytearray) -> int:
        """Read what is new of a body.

        Args:
            arrived: the body so far.

        Returns:
            How many events with output are new.
        """
        before = self.outputs
        self.fresh.clear()
        for data in self._new_events(arrived):
            known = self.outputs
            self._event(data)
            if self.outputs > known:
                self.fresh.append(data)
        return self.outputs - before

    def _new_events(self, arrived: bytearray) -> Iterator[bytes]:
        while (end := arrived.find(b"\n", self._at)) >= 0:
            line = bytes(arrived[self._at : end]).rstrip(b"\r")
            self._at = end + 1
            # Each event of these services has its data in one line; other fields and comments carry no output.
            if line.startswith(_PREFIX):
                yield line[len(_PREFIX) :].strip()

    def _event(self, data: bytes) -> None:
        if data == _DONE:
            self.is_complete = True
            return
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            self.problem = self.problem or (_BAD, f"an event is no JSON: {error}: {_shown(data)}")
            return
        if not isinstance(value, dict):
            self.problem = self.problem or (_BAD, f"an event is {_shown(data)}, expected an object")
        elif value.get("error") is not None:
            self.problem = self.problem or ("error in the stream", error_text(value["error"]))
        else:
            self._count(value)

    def _count(self, value: Mapping[str, Any]) -> None:
        self.tokens = _tokens_of(value, self.tokens)
        choices = [choice for choice in value.get("choices") or () if isinstance(choice, dict)]
        self.outputs += any(map(self.has_output, choices))
        self.is_complete = self.is_complete or any(choice.get("finish_reason") for choice in choices)

    def has_output(self, choice: Mapping[str, Any]) -> bool:
        """Whether a choice of an event carries output."""
        raise NotImplementedError

    def end(self) -> Problem | None:
        """The fault of a stream whose body has ended."""
        if self.problem is None and not self.is_complete:
            return _BAD, f"the stream ended after {self.outputs} events with output, expected data: [DONE]"
        return self.problem


class ChatStream(EventStream):
    """Events of chat completions. The first one often has a role and no text, which is no output."""

    def has_output(self, choice: Mapping[str, Any]) -> bool:
        """Text, reasoning or a call of a tool."""
        delta = choice.get("delta")
        return isinstance(delta, dict) and any(value for key, value in delta.items() if key not in _NOT_OUTPUT)


class CompletionStream(EventStream):
    """Events of completions."""

    def has_output(self, choice: Mapping[str, Any]) -> bool:
        """Text."""
        return bool(choice.get("text"))


class GeneratedStream(EventStream):
    """Events of the generate extension of the KServe protocol: each is a response, and the body ends without a mark."""

    def _count(self, value: Mapping[str, Any]) -> None:
        self.outputs += 1
        self.is_complete = True


def whole_tokens(body: bytes) -> tuple[int, Problem | None]:
    """The tokens of the output of a whole response, 0 where it does not say, and what is wrong with it."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return 0, (_BAD, f"the body is no JSON: {error}: {_shown(body)}")
    if not isinstance(value, dict):
        return 0, (_BAD, f"the body is {_shown(body)}, expected an object")
    if value.get("error") is not None:
        return 0, ("error in the response", error_text(value["error"]))
    return _tokens_of(value, None) or 0, None


def _tokens_of(value: Mapping[str, Any], known: int | None) -> int | None:
    usage = value.get("usage")
    found = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return found if isinstance(found, int) else known


def _shown(data: bytes) -> str:
    return data[:200].decode("utf-8", "replace")
