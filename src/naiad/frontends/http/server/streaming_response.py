"""``StreamingResponse``: a response whose body is written piece by piece, as it is made.

HTTP/1.1 peers get it in chunks. For HTTP/1.0, which has none, the end of the body is the end of the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from naiad.wire.http1.head import encode_stream_head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from naiad.frontends.http.server.exchange import Exchange
    from naiad.wire.http1.head import Part

BEHIND_BYTES: Final = 1 << 20
"""With more bytes waiting for a peer, the model should pause."""
MAX_WAITING_BYTES: Final = 1 << 24
"""The bytes that may wait for a peer. One piece more is accepted, so that a single one may have any size."""

_LAST_CHUNK: Final = b"0\r\n\r\n"


class StreamingResponse:
    """The response to ``exchange``, which must have no other one; its head is written with the first piece.

    ``extra`` are further header fields, which hold no line breaks.

    Nothing happens any more once the peer is gone.
    """

    __slots__ = ("_chunked", "_ended", "_exchange", "_on_taken", "_parts", "_waiting_bytes")

    def __init__(
        self, exchange: Exchange, status: int, content_type: str, extra: Sequence[tuple[str, str]] = ()
    ) -> None:
        head = exchange.head
        lines = head.extra_fields + "".join(f"\r\n{name}: {value}" for name, value in extra).encode("latin-1")
        self._exchange = exchange
        self._ended = False
        self._on_taken: Callable[[], object] | None = None
        self._chunked = head.version != (1, 0)
        self._parts: list[Part] = [encode_stream_head(status, content_type, self._chunked, head.keep_alive, lines)]
        self._waiting_bytes = 0
        # ``response`` stays None: a lost connection writes nothing and keeps no reference.
        if exchange.closed():
            return
        exchange.response = self
        if not self._chunked:
            # HTTP/1.0 knows no chunks: the end of the connection is the end of the body, so no request may follow.
            exchange.connection.drain()

    @property
    def is_full(self) -> bool:
        """Whether nothing may be added: too many bytes wait for the peer, or for an earlier response."""
        return self._waiting_bytes + self._exchange.connection.unsent_bytes() > MAX_WAITING_BYTES

    @property
    def is_behind(self) -> bool:
        """Whether the model should pause, because the peer is slow."""
        return self._waiting_bytes + self._exchange.connection.unsent_bytes() > BEHIND_BYTES

    def when_taken(self, callback: Callable[[], object]) -> None:
        """Call back once, when the peer has taken most of the waiting bytes. For a response that is behind."""
        self._on_taken = callback

    def look(self) -> None:
        """Call back if this response is no longer behind; the connection calls this when its peer takes data."""
        if self._on_taken is not None and not self.is_behind:
            # Cleared first: the callback may add pieces and register again.
            callback, self._on_taken = self._on_taken, None
            callback()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait for earlier responses, or for the peer."""
        return self._waiting_bytes

    def send(self, data: bytes) -> None:
        """Add a piece, which must not be empty."""
        self._add(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def send_large(self, parts: Sequence[bytes | memoryview]) -> None:
        """Add a piece that is made of ``parts``, which are not copied."""
        size = sum(map(len, parts))
        self._add(*((b"%x\r\n" % size, *parts, b"\r\n") if self._chunked else parts))

    def end(self) -> None:
        """Complete the response."""
        self._ended = True
        # Cut by hand: the owner refers to the exchange.
        self._exchange.owner = None
        self._add(_LAST_CHUNK if self._chunked else b"")

    def _add(self, *parts: bytes | memoryview) -> None:
        if not self._exchange.closed():
            self._parts += parts
            self._waiting_bytes += sum(map(len, parts))
            self._exchange.connection.write_pending()

    def write_on(self) -> bool:
        """Write the pieces there are, and return whether that was all; the connection calls this once it is due."""
        # Taken out before the write: the callback below may add further pieces.
        parts, self._parts = self._parts, []
        self._waiting_bytes = 0
        if parts:
            self._exchange.connection.write_due(parts)
            self.look()
        return self._ended
