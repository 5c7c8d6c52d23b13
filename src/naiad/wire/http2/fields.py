"""One header field of a request, by the rules of RFC 9113, section 8.2."""

from __future__ import annotations

import re
from typing import Final

from naiad.wire.http2.frames import Http2ErrorCode, Http2StreamError

# No capitals: section 8.2 calls such names malformed.
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
# The section has no spaces at the ends of values either, but gRPC clients send metadata as it is given to them.
_BAD_VALUE = re.compile(rb"[\x00\r\n]")
_FORBIDDEN: Final = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}


def checked(name: bytes, value: bytes) -> tuple[str, str]:
    """Name and value of a proper field as Latin-1 text.

    Raises:
        Http2StreamError: it is none.
    """
    text = name.decode("latin-1")
    if not _NAME.fullmatch(name.removeprefix(b":")):
        raise Http2StreamError(Http2ErrorCode.PROTOCOL_ERROR, f"header field name {shown(text)}")
    if _BAD_VALUE.search(value):
        raise Http2StreamError(Http2ErrorCode.PROTOCOL_ERROR, f"value of header field {shown(text)}")
    if name in _FORBIDDEN or (name == b"te" and value.lower() != b"trailers"):
        raise Http2StreamError(Http2ErrorCode.PROTOCOL_ERROR, f"header field {shown(text)} belongs to HTTP/1.1")
    return text, value.decode("latin-1")


def shown(name: str) -> str:
    """A name for an error text: short and printable."""
    return ascii(name[:60])
