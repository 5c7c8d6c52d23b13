"""``Exchange``: one request and its response, as a handler sees them, and the connection as the exchange needs it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import orjson

from naiad.wire.http1.head import RequestHead, encode_head

if TYPE_CHECKING:
    from naiad.request import BatchTimes
    from naiad.wire.http1.head import Part

log = logging.getLogger(__name__)

Body = bytes | bytearray | memoryview
"""The whole body of a request."""


class ResponseChannel(Protocol):
    """The side of a connection that sends responses, which leave in the order of their requests.

    Attributes:
        pending: exchanges without a written response, oldest first.
        halted: non-zero while no further request may be taken from the input.
        lost: the transport is gone.
        quiet: seconds since the last response, or since the current wait began.
        write: writes bytes to the transport.
    """

    pending: deque[Exchange]
    halted: int
    lost: bool
    quiet: int
    write: Callable[[Part], None]

    def write_parts(self, parts: list[Part]) -> None:
        """Write one response: small ones as one piece, large ones without copying them."""

    def write_due(self, parts: list[Part]) -> None:
        """Write a response that is due, or more of it."""

    def respond_slowly(self, exchange: Exchange, parts: Sequence[Part]) -> None:
        """Take a response that cannot be written unchanged, or not yet."""

    def write_pending(self) -> None:
        """Write the responses that are due, oldest first, and resume the requests that waited for them."""

    def unsent_bytes(self) -> int:
        """Bytes of responses that the peer has not taken yet."""

    def peer_host(self) -> str:
        """The address of the peer; "" when it is not known."""

    def drain(self) -> None:
        """Take no further request; close after the responses to the requests in flight, or at once."""

    def abort(self) -> None:
        """Drop the connection and what it has not sent."""


class PartialResponse(Protocol):
    """A response that is written piece by piece."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait for earlier responses, or for the peer."""

    def write_on(self) -> bool:
        """Write what there is, now that this response is due, and return whether that was all."""


class ExchangeOwner(Protocol):
    """The handler's side of a request, which the connection can cancel."""

    def cancel(self) -> None:
        """Cancel work that has not begun: most likely nobody waits for the response any more.

        Called at most once, and not after the response was sent. A response must still be sent.
        """


class Exchange:
    """One request and its response. The handler keeps it until it has called ``send`` once, on the loop's thread.

    The handler may set ``owner``: it is cancelled if the peer leaves before the response, and dropped with it.
    ``response`` belongs to the connection: the response, while it waits for those of earlier requests or is incomplete.
    """

    __slots__ = ("connection", "head", "owner", "response")

    def __init__(self, connection: ResponseChannel, head: RequestHead) -> None:
        self.connection = connection
        self.head = head
        self.response: Sequence[Part] | PartialResponse | None = None
        self.owner: ExchangeOwner | None = None

    def send(self, parts: bytes | list[Part]) -> None:
        """Answer with a complete encoded response; the head lies in the first part, as ``encode_head`` makes it.

        Memory views must be flat (one byte per item) and must not change until they are written. Nothing happens when
        the peer is gone.

        Raises:
            InternalError: this exchange was answered before.
        """
        connection = self.connection
        pending = connection.pending
        if self.head.plain and pending and pending[0] is self and not connection.halted:
            # The usual case, written out: the oldest request of an HTTP/1.1 connection that nothing holds up.
            pending.popleft()
            # Cut by hand: the owner refers to this exchange, and neither should wait for the garbage collector.
            self.owner = None
            connection.quiet = 0
            if type(parts) is bytes:
                connection.write(parts)
            else:
                connection.write_parts(cast("list[Part]", parts))
            if pending:
                connection.write_pending()
            return
        connection.respond_slowly(self, [parts] if isinstance(parts, bytes) else parts)

    def send_status(self, status: int, content_type: str, body: bytes, extra: Sequence[tuple[str, str]] = ()) -> None:
        """Answer with a head made of ``status``, ``content_type`` and ``extra`` headers, and ``body``."""
        self.send(encode_head(status, content_type, len(body), extra) + body)

    def send_error(self, status: int, message: str, extra: Sequence[tuple[str, str]] = ()) -> None:
        """Answer with the protocol's error document, ``{"error": message}`` as JSON."""
        if status == 503 and not extra:
            extra = (("Retry-After", "1"),)
        self.send_status(status, "application/json", orjson.dumps({"error": message}), extra)

    def closed(self) -> bool:
        """Whether the peer is gone, so that nobody will read the response."""
        return self.connection.lost

    def joined(self, batch: BatchTimes) -> None:
        """Note the batch that its request runs in, where its response has the times (``Server-Timing``)."""
        return


class OuterExchange(Exchange):
    """An exchange that wraps another one."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Exchange) -> None:
        # Not through super(): ``owner`` is that of ``inner``, which the connection cancels when the caller is gone.
        self._inner = inner
        self.connection = inner.connection
        self.head = inner.head
        self.response = None

    def joined(self, batch: BatchTimes) -> None:
        self._inner.joined(batch)

    @property
    def owner(self) -> ExchangeOwner | None:
        return self._inner.owner

    @owner.setter
    def owner(self, owner: ExchangeOwner | None) -> None:
        self._inner.owner = owner


def give_up(exchanges: Iterable[Exchange]) -> int:
    """Cancel the owners of these exchanges, each once, because the peer is gone; returns the number of owners."""
    told = 0
    # A copy: an owner may respond at once, which takes exchanges out of the queue.
    for exchange in list(exchanges):
        # Dropped first: the end of input and the loss of the connection both come here, and a response may come
        # meanwhile.
        owner, exchange.owner = exchange.owner, None
        if owner is None:
            continue
        told += 1
        try:
            owner.cancel()
        except Exception:
            # The other owners must be cancelled all the same.
            log.exception("a request could not be cancelled: %s %s", exchange.head.method, exchange.head.target)
    return told


Handler = Callable[[Exchange, "bytearray | memoryview"], None]
"""Called with the whole body, which the handler may keep and write to."""

Application = Callable[[RequestHead], Handler]
"""Finds the handler of a request, once per distinct head, and sets the head's attributes that are the application's.

404 and 405 are handlers as well. It raises nothing but ``HttpError``, which also ends the connection.
"""
