"""The parts of the body of an inference request, JSON and tensors: what the server must know before they arrive."""

from __future__ import annotations

import re
from typing import Final

from naiad.wire.http1.head import HttpError, RequestHead

LENGTH_HEADER: Final = "Inference-Header-Content-Length"
"""The header with the length of the JSON part in bytes, in requests and in responses."""
_LENGTH: Final = LENGTH_HEADER.lower()
_LENGTH_LINE: Final = f"\r\n{_LENGTH}:".encode()
_SIGNED_DIGITS: Final = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS: Final = 64
_BEYOND_ANY_BODY: Final = 1 << 62


def describe_body(head: RequestHead) -> None:
    """Set what the server is to know of the body of a request to ``infer``.

    Raises:
        HttpError: the length of the JSON part is given more than once.
    """
    head.needs_room = True
    head.first_part_bytes = size = json_bytes(head)
    # As in the reference, ``--http-max-input-size`` bounds what has to be read or decompressed, and not the bytes of
    # tensors behind the JSON part.
    if size is not None and size > 0 and "content-encoding" not in head.headers:
        head.limited_bytes = size


def json_bytes(head: RequestHead) -> int | None:
    """``Inference-Header-Content-Length`` up to its first character that is no digit, as the reference reads it.

    0 without digits, None without the header. It may be negative, or larger than the body.

    Raises:
        HttpError: the header is given more than once.
    """
    value = head.headers.get(_LENGTH)
    if value is None:
        return None
    # Two readers of the same head could use different values.
    if ", " in value and head.raw.lower().count(_LENGTH_LINE) > 1:
        raise HttpError(400, f"header {_LENGTH} is given more than once")
    number = _SIGNED_DIGITS.match(value)
    if number is None:
        return 0
    digits = number[0]
    # Parsing a number takes time quadratic in its digits; one with more digits than this is too large in any case.
    if len(digits) > _MAX_DIGITS:
        return -_BEYOND_ANY_BODY if digits[0] == "-" else _BEYOND_ANY_BODY
    return int(digits)
