"""One stream of an HTTP/2 connection, as the connection sees it."""

from __future__ import annotations

from collections import deque
from typing import Final

REMOTE_CLOSED: Final = 1
HEADERS_SENT: Final = 2
LOCAL_CLOSED: Final = 4
STALLED: Final = 8
PAUSED: Final = 16
BUSY: Final = 32
FIRST_FREE_FLAG: Final = 64


class Stream:
    """A request and its answer on one connection; subclasses give the events a meaning.

    Attributes:
        flags: what has happened: ``REMOTE_CLOSED`` (the request is whole), ``HEADERS_SENT``, ``LOCAL_CLOSED`` (the
            answer is whole, though some of it may wait), ``STALLED`` (its window is used up and data waits), ``PAUSED``
            and ``BUSY`` (the peer is granted no more data); bits from ``FIRST_FREE_FLAG`` on belong to the subclass.
        credit: what the peer's window updates have granted above the initial window, less what was sent.
        granted: how many bytes of data the peer was allowed beyond the initial window.
        received: how many bytes of data have come, where that was counted.
        queue, queued_bytes: data that waits for room, and its size; None until there was any.
        trailers: the header block that ends the answer, while it waits for the data before it.
    """

    __slots__ = ("credit", "flags", "granted", "id", "queue", "queued_bytes", "received", "trailers")

    def __init__(self, stream_id: int) -> None:
        self.id = stream_id
        self.flags = 0
        self.credit = 0
        self.granted = 0
        self.received = 0
        self.queue: deque[memoryview] | None = None
        self.queued_bytes = 0
        self.trailers: bytes | None = None

    def data(self, buffer: bytearray, start: int, end: int, ended: bool) -> None:
        """Data of the request lie in ``buffer[start:end]``, which does not outlive the call; ``ended``: the last."""

    def target(self) -> memoryview | None:
        """Memory to receive the next bytes of data into, for at least as many as the stream waits for; or None."""
        return None

    def advance(self, size: int) -> None:
        """``size`` bytes were received into ``target``."""

    def end(self) -> None:
        """The request has ended without more data."""

    def lost(self, code: int) -> None:
        """The peer gave the stream up, or the connection is gone. The connection has forgotten the stream."""

    def drained(self) -> None:
        """All data that waited have left."""
