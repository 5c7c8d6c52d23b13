"""``Exchange``: one request and its answer, as a handler sees them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import orjson

from naiad.wire.http1.head import RequestHead, encode_head

if TYPE_CHECKING:
    from naiad.frontends.http.json_worker.pool import JsonWork
    from naiad.frontends.http.server.response_writer import ResponseWriter
    from naiad.frontends.http.server.streaming_response import StreamingResponse
    from naiad.wire.http1.head import Part

log = logging.getLogger(__name__)


class ExchangeOwner(Protocol):
    """Who works on a request."""

    def cancel(self) -> None:
        """Most likely nobody waits for the answer any more: give up what has not begun.

        Called at most once, and not after the answer was given. An answer is still to be given, also now.
        """


class Exchange:
    """One request and its answer. The handler keeps it until it has called ``send`` once, on the loop's thread.

    ``owner`` may be set by the handler: it is told when the peer goes before the answer was given, and forgotten when
    it was. ``answer`` belongs to the connection: the answer, while it waits for those of earlier requests or is not
    complete.
    """

    __slots__ = ("answer", "connection", "head", "owner")

    def __init__(self, connection: ResponseWriter, head: RequestHead) -> None:
        self.connection = connection
        self.head = head
        self.answer: Sequence[Part] | StreamingResponse | None = None
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
            pending.popleft()
            # It leads back here.
            self.owner = None
            connection.quiet = 0
            if type(parts) is bytes:
                connection.write(parts)
            else:
                connection.write_parts(cast("list[Part]", parts))
            if pending:
                connection.answer_next()
            return
        connection.answer_slowly(self, [parts] if isinstance(parts, bytes) else parts)

    def send_status(self, status: int, content_type: str, body: bytes, extra: Sequence[tuple[str, str]] = ()) -> None:
        """Answer with a head made of ``status``, ``content_type`` and ``extra`` headers, and ``body``."""
        self.send(encode_head(status, content_type, len(body), extra) + body)

    def send_error(self, status: int, message: str, extra: Sequence[tuple[str, str]] = ()) -> None:
        """Answer with the protocol's error document, ``{"error": message}`` as JSON."""
        if status == 503 and not extra:
            extra = (("Retry-After", "1"),)
        self.send_status(status, "application/json", orjson.dumps({"error": message}), extra)

    @property
    def json_work(self) -> JsonWork:
        """Who reads and writes large JSON."""
        return self.connection.json_work

    def closed(self) -> bool:
        """The peer is gone: nobody will read the answer."""
        return self.connection.lost


def give_up(exchanges: Iterable[Exchange]) -> int:
    """Tell the owners of these exchanges, each once, that the peer is gone; how many there were."""
    told = 0
    for exchange in list(exchanges):
        owner, exchange.owner = exchange.owner, None
        if owner is None:
            continue
        told += 1
        try:
            owner.cancel()
        except Exception:
            log.exception("a request could not be cancelled: %s %s", exchange.head.method, exchange.head.target)
    return told


Handler = Callable[[Exchange, "bytearray | memoryview"], None]
"""Called with the whole body, which the handler may keep and write to."""

Application = Callable[[RequestHead], Handler]
"""Finds who answers a request; asked once per distinct head. It must not raise: 404 and 405 are handlers as well."""
