"""Compressed data: gzip and deflate, which is the zlib format here and in HTTP."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
EITHER: Final = 47
"""The window bits for data in either format; zlib recognises which by the first bytes."""

MAX_MEMBERS: Final = 1024
"""The most members in gzip data. A member costs as much time as some kilobytes of data, however small it is."""

_GZIP_START: Final = b"\x1f\x8b"
_STEP_BYTES: Final = 1 << 20
_SLICE_BYTES: Final = 1 << 18


class BrokenDataError(Exception):
    """The data are not in the declared format. The text completes a sentence that begins with the name of the data."""


class TooMuchDataError(Exception):
    """Data have more bytes than they may once decompressed."""


def inflate(data: bytes | bytearray | memoryview, encoding: str, window_bits: int, limit: int) -> bytearray:
    """``data`` decompressed, at most ``limit`` bytes; ``encoding`` is what errors call it.

    With ``EITHER``, which HTTP needs, gzip data may have several members in a row (RFC 1952, section 2.2).

    Raises:
        BrokenDataError: the data are truncated, are followed by other bytes, are in another format, or have more than
            ``MAX_MEMBERS``.
        TooMuchDataError: there are more than ``limit`` bytes. Decompression stops shortly after them, so memory stays
            bounded.
    """
    whole = bytearray()
    worker = zlib.decompressobj(window_bits)
    view = memoryview(data)
    members = 1
    try:
        # In slices: at every step zlib copies the input that it has not used yet.
        for start in range(0, len(view), _SLICE_BYTES):
            rest: Any = view[start : start + _SLICE_BYTES]
            while rest:
                if worker.eof:
                    # At the end of a slice only one byte of the next member may have come.
                    is_next = _GZIP_START.startswith(bytes(rest[:2]))
                    if window_bits != EITHER or bytes(view[:2]) != _GZIP_START or not is_next:
                        raise BrokenDataError(f"goes on behind the end of its {encoding} data")
                    members += 1
                    if members > MAX_MEMBERS:
                        raise BrokenDataError(f"has more than {MAX_MEMBERS} members in its {encoding} data")
                    worker = zlib.decompressobj(WINDOW_BITS["gzip"])
                # One byte above the limit shows that there are too many.
                whole += worker.decompress(rest, min(_STEP_BYTES, limit - len(whole) + 1))
                rest = worker.unconsumed_tail or worker.unused_data
                if len(whole) > limit:
                    raise TooMuchDataError
        whole += worker.flush()
    except zlib.error as error:
        raise BrokenDataError(f"cannot be decompressed as {encoding}: {error}") from None
    if not worker.eof:
        raise BrokenDataError(f"ends in the middle of its {encoding} data")
    if len(whole) > limit:
        raise TooMuchDataError
    return whole


def compress(parts: Sequence[Any], encoding: str, level: int) -> bytes:
    """All that is in ``parts`` in an encoding, at a level of zlib."""
    worker = zlib.compressobj(level, zlib.DEFLATED, WINDOW_BITS[encoding])
    return b"".join([*[worker.compress(part) for part in parts], worker.flush()])
