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
    """A request and its response on one connection; subclasses handle the events.

    Attributes:
        flags: the state: ``REMOTE_CLOSED`` (the request is complete), ``HEADERS_SENT``, ``LOCAL_CLOSED`` (the response
            is complete, though some of it may wait), ``STALLED`` (its window is used up and data waits), ``PAUSED``
            and ``BUSY`` (the peer is granted no more data); bits from ``FIRST_FREE_FLAG`` on belong to the subclass.
        credit: the bytes that window updates of the peer granted above the initial window, less the bytes sent.
        granted: the bytes of data that the peer may send beyond the initial window.
        received: the bytes of data received, where these are counted.
        queue, queued_bytes: data that wait for a window, and their size; None until there are any.
        trailers: the header block that ends the response, while it waits for the data before it.
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
        """Data of the request are in ``buffer[start:end]``, which is valid during the call; ``ended`` marks the
        last.
        """

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
