"""Responses of HTTP/1.1 as they arrive: the status, where they end, and their body where somebody wants it."""

from __future__ import annotations

import re
from typing import Final

from naiad.wire.http1.chunked import ChunkedDecoder

MAX_HEAD_BYTES: Final = 1 << 16
_MAX_BODY_BYTES: Final = 1 << 40
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked", re.IGNORECASE)
_CLOSES: Final = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
HEADER_LENGTH: Final = re.compile(rb"\r\ninference-header-content-length:[ \t]*(\d+)", re.IGNORECASE)
CODING: Final = re.compile(rb"\r\ncontent-encoding:[ \t]*(\w+)", re.IGNORECASE)


class BadResponseError(Exception):
    """What arrived is no response of HTTP/1.1; the text is the finding."""


class HttpResponseReader:
    """Reads one response after the other, piece by piece.

    Attributes:
        status: of the response that was read last.
        head: its head, up to the empty line.
        closes: whether the connection ends with it.
        body: its body, if it was kept: those of failures always are.
        length: its bytes, head included; 0 when it has no content length.
    """

    __slots__ = (
        *("_chunks", "_is_within", "_left", "_received", "_reads_to_end"),
        *("body", "closes", "head", "length", "status"),
    )

    def __init__(self) -> None:
        self.status = 0
        self.head = b""
        self.closes = False
        self.length = 0
        self.body: bytearray | None = None
        self._received = bytearray()
        self._chunks: ChunkedDecoder | None = None
        self._left = 0
        self._reads_to_end = False
        self._is_within = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a response has been read since the last whole one."""
        return not (self._is_within or self._received)

    @property
    def arrived(self) -> bytearray:
        """What has arrived of a body that is kept."""
        if self._chunks is not None:
            return self._chunks.body
        return bytearray() if self.body is None else self.body

    def feed(self, data: bytes, *, keeps_body: bool) -> bool:
        """Take what has arrived; whether the response is whole.

        Raises:
            BadResponseError: it is no response, or more than one has arrived.
            HttpError: the chunks of its body are broken.
        """
        if not self._is_within:
            self._received += data
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > MAX_HEAD_BYTES:
                    raise BadResponseError(f"the response has no end of its head within {MAX_HEAD_BYTES} bytes")
                return False
            data = bytes(self._received[end + 4 :])
            self._begin(bytes(self._received[: end + 4]), keeps_body=keeps_body)
            self._received.clear()
            # An informational response, such as 100 Continue: the one that is meant comes behind it.
            if self.status < 200:
                self._is_within = False
                return bool(data) and self.feed(data, keeps_body=keeps_body)
        return self._take_body(data)

    def _begin(self, head: bytes, *, keeps_body: bool) -> None:
        if not head.startswith(b"HTTP/1.") or not head[9:12].isdigit():
            raise BadResponseError(f"expected a response of HTTP/1.1, got {head[:40]!r}")
        self.head, self.status = head, int(head[9:12])
        self._is_within = True
        self.closes = _CLOSES.search(head) is not None
        self.body = bytearray() if keeps_body or self.status != 200 else None
        self._left = self.length = 0
        self._reads_to_end = False
        self._chunks = None
        found = _LENGTH.search(head)
        if found is not None:
            self._left = int(found[1])
            self.length = len(head) + self._left
        elif _CHUNKED.search(head):
            self._chunks = ChunkedDecoder(_MAX_BODY_BYTES)
        # RFC 9112, section 6.3: a body without a length ends with its connection.
        elif self.status >= 200 and self.status not in (204, 304):
            self._reads_to_end = self.closes = True

    def _take_body(self, data: bytes) -> bool:
        if self._chunks is not None:
            used = self._chunks.feed(memoryview(data))
            # Nobody reads it, and a stream may be long.
            if self.body is None:
                self._chunks.body.clear()
            elif self._chunks.done:
                self.body = self._chunks.body
            return self._ends(self._chunks.done, len(data) - used)
        if self.body is not None:
            self.body += data
        if self._reads_to_end:
            return False
        self._left -= len(data)
        return self._ends(self._left <= 0, -self._left)

    def _ends(self, is_whole: bool, extra: int) -> bool:
        if is_whole and extra > 0:
            raise BadResponseError(f"{extra} bytes came behind the end of the response")
        if is_whole:
            self._is_within = False
        return is_whole

    def end(self) -> bool:
        """The connection has ended; whether that makes the response whole."""
        is_whole = self._is_within and self._reads_to_end
        self._is_within = False
        self._received.clear()
        return is_whole
