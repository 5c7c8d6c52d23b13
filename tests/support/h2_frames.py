"""HTTP/2 and gRPC as bytes, written without any code of the server."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
START = PREFACE + EMPTY_SETTINGS


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """A frame; ``length`` lies about the payload when it is given."""
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes((kind, flags)) + struct.pack(">I", stream_id) + payload


def data_frame(stream_id: int, raw: bytes, end: bool = False, length: int | None = None) -> bytes:
    """A DATA frame; ``end``: the last of its request."""
    return frame(DATA, int(end), stream_id, raw, length)


def message(body: bytes = b"", flag: int = 0) -> bytes:
    """A length-prefixed message."""
    return struct.pack(">BI", flag, len(body)) + body


def call_headers(path: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    """The header fields of a call."""
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *more,
    ]


def plain_block(fields: Iterable[tuple[str | bytes, str | bytes]]) -> bytes:
    """A header block of literals that use no table."""
    block = b""
    for pair in fields:
        name, value = (text.encode("latin-1") if isinstance(text, str) else text for text in pair)
        block += b"\x00" + _length(name) + name + _length(value) + value
    return block


def _length(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes((size,))
    size -= 127
    encoded = b"\x7f"
    while size >= 128:
        encoded += bytes((size & 127 | 128,))
        size >>= 7
    return encoded + bytes((size,))


@functools.lru_cache(16)
def numbered(size: int) -> bytes:
    """Bytes of which no two places look alike for long, to see what is lost or doubled."""
    return b"".join(struct.pack(">I", n) for n in range(size // 4 + 1))[:size]
