"""``Server-Timing`` over HTTP: an exchange that adds the header to its response."""

from __future__ import annotations

from typing import Any

from naiad.frontends.http.server.exchange import Exchange, ExchangeOwner, Handler, OuterExchange
from naiad.frontends.inference.client_request import ClientRequest
from naiad.frontends.inference.server_timing import FIELD, RequestTiming, wants_timing
from naiad.request import BatchTimes
from naiad.wire.http1.head import HEAD_END, RequestHead

_OK = b"HTTP/1.1 200 "


class TimedExchange(OuterExchange):
    """Adds the times of the request that owns it. A response that is streamed has none: it begins before it is made."""

    __slots__ = ("_timing",)

    def __init__(self, inner: Exchange) -> None:
        super().__init__(inner)
        self._timing: RequestTiming | None = None

    @property
    def owner(self) -> ExchangeOwner | None:
        return self._inner.owner

    @owner.setter
    def owner(self, owner: ExchangeOwner | None) -> None:
        # A request becomes the owner before it is submitted.
        request: object = owner
        if isinstance(request, ClientRequest):
            self._timing = RequestTiming(request)
        self._inner.owner = owner

    def joined(self, batch: BatchTimes) -> None:
        if self._timing is not None:
            self._timing.joined(batch)

    def send(self, parts: bytes | list[Any]) -> None:
        # Dropped, as it refers to the request.
        timing, self._timing = self._timing, None
        if timing is None:
            self._inner.send(parts)
            return
        first, *rest = [parts] if isinstance(parts, bytes) else parts
        first = bytes(first)
        end = first.index(HEAD_END)
        line = f"\r\n{FIELD}: {timing.text(succeeded=first.startswith(_OK))}".encode()
        self._inner.send([first[:end] + line + first[end:], *rest])


def with_timing(handler: Handler, head: RequestHead) -> Handler:
    """``handler`` for requests with ``head``: with the times in their responses if the head asks for them."""
    if not wants_timing(head.headers):
        return handler

    def handle(exchange: Exchange, body: bytearray | memoryview) -> None:
        handler(TimedExchange(exchange), body)

    return handle
