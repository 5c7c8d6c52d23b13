"""Compression of gRPC messages: gzip and deflate (which is the zlib format here), in both directions.

Source: gRPC's "Compression" page and the ``grpc-encoding`` header of "gRPC over HTTP/2".
"""

from __future__ import annotations

from typing import Final

from naiad.errors import NaiadError
from naiad.wire.compression import WINDOW_BITS, BrokenDataError, TooMuchDataError, inflate

IDENTITY: Final = "identity"
ENCODINGS: Final = (IDENTITY, *WINDOW_BITS)
ACCEPTED: Final = ",".join(ENCODINGS)
LEVELS: Final = {"low": 1, "medium": 5, "high": 9}
"""``--grpc-infer-response-compression-level`` as a level of zlib."""


class DecompressionError(NaiadError):
    """A message is not in its declared encoding, or is truncated (INTERNAL, the status of other gRPC
    implementations).
    """


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
    try:
        return inflate(message, encoding, WINDOW_BITS[encoding], limit)
    except BrokenDataError as error:
        raise DecompressionError(f"the request message {error}") from None
    except TooMuchDataError:
        raise MessageTooLargeError(
            f"the request message has more than {limit} bytes once decompressed; see --grpc-max-input-size"
        ) from None


def best_encoding(accepted: str) -> str:
    """The encoding for responses to a caller that sent ``grpc-accept-encoding: accepted``: gzip before deflate."""
    names = {name.strip() for name in accepted.split(",")}
    return next((name for name in WINDOW_BITS if name in names), IDENTITY)
