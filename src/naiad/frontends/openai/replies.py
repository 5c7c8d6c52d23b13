"""How a caller gets what a model generates: as one response at the end, or as an event for each part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import orjson

from naiad.errors import BackendError, NaiadError, ResponseBacklogError
from naiad.frontends.http.server.exchange import Exchange
from naiad.frontends.http.server.replies import JSON
from naiad.frontends.http.server.streaming_response import StreamingResponse
from naiad.frontends.openai.errors import error_json, send_error
from naiad.frontends.openai.response_documents import Document, ResponseDocuments
from naiad.request import Array
from naiad.wire.openai.generated import NOTHING, Generated, TokenLogprob, TokenUsage, read_generated

EVENTS: Final = "text/event-stream; charset=utf-8"
_DONE: Final = b"data: [DONE]\n\n"
MAX_TEXT: Final = 1 << 26
"""The most characters of a text that is sent at its end."""


class ModelFlow(Protocol):
    """The request to the model, as a reply steers it."""

    def pause(self) -> None:
        """Ask the model to wait: its caller does not take what is there."""

    def resume(self) -> None:
        """Have the model go on."""

    def stop(self) -> None:
        """Cancel the request: nothing more of it is wanted."""


class Reply(Protocol):
    """What becomes of the responses to one request, of which the last one is ``final``."""

    def take(self, outputs: Mapping[str, Array] | None, final: bool) -> bool:
        """Take a response, None for no more than the end; True when the reply is complete."""

    def fail(self, error: NaiadError) -> None:
        """End with an error."""


class WholeReply:
    """One response with the whole text. A model that sends it in parts may do so."""

    def __init__(self, exchange: Exchange, make: Callable[[Generated], Document]) -> None:
        self._exchange = exchange
        self._make = make
        self._texts: list[str] = []
        self._size = 0
        self._logprobs: list[TokenLogprob] | None = None
        self._usage: TokenUsage | None = None
        self._reason = ""

    def take(self, outputs: Mapping[str, Array] | None, final: bool) -> bool:
        if outputs is not None:
            self._add(read_generated(outputs))
        elif final and not self._texts:
            raise BackendError("Unexpected number of responses: 0, expected 1 or 2.")
        if not final:
            return False
        whole = Generated("".join(self._texts), self._reason, self._usage, self._logprobs)
        self._exchange.send_status(200, JSON, orjson.dumps(self._make(whole)))
        return True

    def _add(self, part: Generated) -> None:
        self._texts.append(part.text)
        self._size += len(part.text)
        if self._size > MAX_TEXT:
            raise BackendError(f"the model generated more than {MAX_TEXT} characters for one response")
        self._reason = part.finish_reason or self._reason
        self._usage = _sum(self._usage, part.usage)
        if part.logprobs is not None:
            self._logprobs = (self._logprobs or []) + part.logprobs

    def fail(self, error: NaiadError) -> None:
        send_error(self._exchange, error)


class StreamedReply:
    """An event for every part, as it comes. The first response decides on the status."""

    def __init__(self, exchange: Exchange, documents: ResponseDocuments, flow: ModelFlow, include_usage: bool) -> None:
        self._exchange = exchange
        self._documents = documents
        self._flow = flow
        self._include_usage = include_usage
        self._events: StreamingResponse | None = None
        self._is_held = False
        self._usage: TokenUsage | None = None

    def take(self, outputs: Mapping[str, Array] | None, final: bool) -> bool:
        if outputs is None and not final:
            return False
        part = NOTHING if outputs is None else read_generated(outputs)
        self._usage = _sum(self._usage, part.usage)
        if self._events is not None and self._events.is_full:
            self._flow.stop()
            self.fail(ResponseBacklogError("the parts come faster than they are taken: the request was cancelled"))
            return True
        # Made before the events begin: an error still has a status then.
        found = self._documents.part(part, final)
        if self._events is None:
            self._events = StreamingResponse(self._exchange, 200, EVENTS)
            found = [*self._documents.begin(), *found]
        is_last = final or self._documents.is_cut
        if is_last and self._include_usage and self._usage is not None:
            found.append(self._documents.usage(self._usage))
        self._send(self._events, b"".join([_event(orjson.dumps(document)) for document in found]), is_last)
        if not is_last:
            self._apply_back_pressure(self._events)
        elif not final:
            self._flow.stop()
        return is_last

    def _send(self, events: StreamingResponse, text: bytes, is_last: bool) -> None:
        if is_last:
            text += _DONE
        # Nothing can be said of a part that may be the beginning of a call.
        if text:
            events.send(text)
        if is_last:
            events.end()

    def _apply_back_pressure(self, events: StreamingResponse) -> None:
        if events.is_behind and not self._is_held:
            self._is_held = True
            self._flow.pause()
            # The connection calls back when its peer takes data: nothing polls.
            events.when_taken(self._resume)

    def _resume(self) -> None:
        if self._is_held:
            self._is_held = False
            self._flow.resume()

    def fail(self, error: NaiadError) -> None:
        if self._events is None:
            send_error(self._exchange, error)
            return
        self._send(self._events, _event(error_json(error)), is_last=True)


def _event(document: bytes) -> bytes:
    return b"data: %b\n\n" % document


def _sum(before: TokenUsage | None, part: TokenUsage | None) -> TokenUsage | None:
    """The tokens so far: those of the prompt come with each part, those of the text are new ones."""
    if before is None or part is None:
        return part or before
    return TokenUsage(before.prompt, before.completion + part.completion)
