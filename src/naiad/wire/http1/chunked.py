"""The chunked transfer coding of HTTP/1.1 request bodies (RFC 9112, section 7.1), read piece by piece."""

from __future__ import annotations

import re
from typing import Final

from naiad.wire.http1.head import HttpError

MAX_CHUNKS: Final = 65_536
_TOO_MANY: Final = (
    f"Chunked request body exceeds maximum of {MAX_CHUNKS} non-empty chunks. Send fewer or larger HTTP chunks."
)
MAX_SIZE_LINE_BYTES: Final = 1024
MAX_TRAILER_BYTES: Final = 8192

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")
# Shorter than ``MAX_SIZE_LINE_BYTES`` in any case, so that a longer line is refused where lines are counted.
_SHORT_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]{0,8};[^\x00-\x08\x0a-\x1f\x7f]{0,1000})?\r\n")
_CR, _LF = b"\r\n"
_TRAILER_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\x0a-\x1f\x7f]*")

_SIZE, _DATA, _DATA_END, _TRAILERS, _DONE = range(5)
# CRLF after the data of a chunk counts as an empty line.
_LINE_LIMITS: Final = {_SIZE: MAX_SIZE_LINE_BYTES, _DATA_END: 0, _TRAILERS: MAX_TRAILER_BYTES}


class ChunkedDecoder:
    """Decodes a chunked body as its bytes arrive and collects the data in ``body``.

    Chunk extensions and trailers are checked for their syntax and dropped. ``max_body_bytes`` bounds ``body``,
    and ``too_large_status`` is the status of a body beyond it; the number of chunks, the size lines and the trailers
    have fixed bounds.
    """

    __slots__ = (
        "_chunks",
        "_left",
        "_line",
        "_max_body_bytes",
        "_state",
        "_too_large_status",
        "_trailer_bytes",
        "body",
    )

    def __init__(self, max_body_bytes: int, too_large_status: int = 400) -> None:
        self.body = bytearray()
        self._max_body_bytes = max_body_bytes
        self._too_large_status = too_large_status
        self._state = _SIZE
        self._left = 0
        self._line = bytearray()
        self._chunks = 0
        self._trailer_bytes = 0

    @property
    def done(self) -> bool:
        """The last chunk and the trailers were read; ``body`` is whole."""
        return self._state == _DONE

    def feed(self, data: memoryview) -> int:
        """Consume bytes and return how many belonged to this body; fewer than given only when ``done``.

        Raises:
            HttpError: 400 for a coding that is not well-formed or has too many chunks, ``too_large_status`` for a body
                over the limit.
        """
        position = 0
        while position < len(data) and self._state != _DONE:
            if self._state == _DATA:
                position += self._take_data(data[position:])
                continue
            start = position
            if self._state == _SIZE and not self._line:
                position = self._take_whole_chunks(data, start)
            if position == start:
                position += self._take_line(data[position:])
        return position

    def _take_whole_chunks(self, data: memoryview, position: int) -> int:
        """Fast path for chunks that lie completely in ``data``; returns the position of the first other one."""
        body, limit = self.body, len(data)
        while (line := _SHORT_SIZE_LINE.match(data, position)) is not None:
            begin = line.end()
            size = int(line[1], 16)
            end = begin + size
            if not size or end + 2 > limit or data[end] != _CR or data[end + 1] != _LF:
                break
            # The general path reads this chunk and raises the error.
            if self._chunks >= MAX_CHUNKS or len(body) + size > self._max_body_bytes:
                break
            self._chunks += 1
            body += data[begin:end]
            position = end + 2
        return position

    def _take_data(self, data: memoryview) -> int:
        taken = min(self._left, len(data))
        self.body += data[:taken]
        self._left -= taken
        if self._left == 0:
            self._state = _DATA_END
        return taken

    def _take_line(self, data: memoryview) -> int:
        limit = _LINE_LIMITS[self._state]
        before = len(self._line)
        # No more than the longest line with its CRLF: a line without an end must not grow.
        self._line += data[: limit + 2 - before]
        # From one byte back: CR may have come at the end of the last piece.
        end = self._line.find(b"\r\n", max(0, before - 1))
        if end < 0:
            self._check_unfinished_line(limit)
            return len(self._line) - before
        line = bytes(self._line[:end])
        self._line.clear()
        self._read_line(line)
        return end + 2 - before

    def _check_unfinished_line(self, limit: int) -> None:
        if len(self._line) < limit + 2:
            return
        if limit == 0:
            raise HttpError(400, "data of a chunk is not followed by CRLF")
        raise HttpError(400, f"line of a chunked body is longer than {limit} bytes")

    def _read_line(self, line: bytes) -> None:
        if self._state == _SIZE:
            self._start_chunk(line)
        elif self._state == _DATA_END:
            self._state = _SIZE
        else:
            self._read_trailer(line)

    def _start_chunk(self, line: bytes) -> None:
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise HttpError(400, f"malformed chunk size {line[:32].decode('latin-1')!a}, expected hexadecimal")
        size = int(match[1], 16)
        if size == 0:
            self._state = _TRAILERS
            return
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            raise HttpError(400, _TOO_MANY)
        total = len(self.body) + size
        if total > self._max_body_bytes:
            raise _too_large(total, self._max_body_bytes, self._too_large_status)
        self._left = size
        self._state = _DATA

    def _read_trailer(self, line: bytes) -> None:
        if not line:
            self._state = _DONE
            return
        self._trailer_bytes += len(line) + 2
        if self._trailer_bytes > MAX_TRAILER_BYTES:
            raise HttpError(400, f"trailers of a chunked body are longer than {MAX_TRAILER_BYTES} bytes")
        if _TRAILER_LINE.fullmatch(line) is None:
            raise HttpError(400, f"malformed trailer {line[:32].decode('latin-1')!a}")


def _too_large(found_bytes: int, max_bytes: int, status: int) -> HttpError:
    """The error for a body over the server's limit, whose size is not known yet."""
    return HttpError(
        status,
        f"request body of at least {found_bytes} bytes exceeds the maximum allowed input size of {max_bytes} bytes. "
        "Use --http-max-input-size to increase the limit.",
    )
