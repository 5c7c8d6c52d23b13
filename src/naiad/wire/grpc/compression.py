"""Compression of gRPC messages: gzip and deflate (which is the zlib format here), in both directions.

Source: gRPC's "Compression" page and the ``grpc-encoding`` header of "gRPC over HTTP/2".
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

from naiad.errors import NaiadError

IDENTITY: Final = "identity"
_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
ENCODINGS: Final = (IDENTITY, *_WINDOW_BITS)
ACCEPTED: Final = ",".join(ENCODINGS)
LEVELS: Final = {"low": 1, "medium": 5, "high": 9}
"""``--grpc-infer-response-compression-level`` as a level of zlib."""
_STEP_BYTES: Final = 1 << 20
_SLICE_BYTES: Final = 1 << 18


class DecompressionError(NaiadError):
    """A message is not what its encoding says, or is cut off (INTERNAL, as in the other implementations of gRPC)."""


class MessageTooLargeError(NaiadError):
    """A message is larger than the server takes."""

    grpc_code = 8
    reason = "REJECTED"


def decompress(message: bytes | bytearray | memoryview, encoding: str, limit: int) -> bytearray:
    """A message as it was before ``encoding``, at most ``limit`` bytes.

    Raises:
        DecompressionError: it is not in that encoding.
        MessageTooLargeError: it has more bytes than ``limit``.
    """
    whole = bytearray()
    worker = zlib.decompressobj(_WINDOW_BITS[encoding])
    view = memoryview(message)
    try:
        # In slices: zlib copies what it has not used yet at every step.
        for start in range(0, len(view), _SLICE_BYTES):
            rest: Any = view[start : start + _SLICE_BYTES]
            while rest:
                if worker.eof:
                    raise DecompressionError(f"the request message goes on behind the end of its {encoding} data")
                whole += worker.decompress(rest, _STEP_BYTES)
                rest = worker.unconsumed_tail or worker.unused_data
                if len(whole) > limit:
                    raise MessageTooLargeError(
                        f"the request message has more than {limit} bytes once decompressed; see --grpc-max-input-size"
                    )
        whole += worker.flush()
    except zlib.error as error:
        raise DecompressionError(f"the request message cannot be decompressed as {encoding}: {error}") from None
    if not worker.eof:
        raise DecompressionError(f"the request message ends in the middle of its {encoding} data")
    return whole


def compress(parts: Sequence[Any], encoding: str, level: int) -> bytes:
    """The message in ``parts`` in an encoding."""
    worker = zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS[encoding])
    return b"".join([*[worker.compress(part) for part in parts], worker.flush()])


def best_encoding(accepted: str) -> str:
    """The encoding for answers to a caller that sent ``grpc-accept-encoding: accepted``: gzip before deflate."""
    names = {name.strip() for name in accepted.split(",")}
    return next((name for name in _WINDOW_BITS if name in names), IDENTITY)
