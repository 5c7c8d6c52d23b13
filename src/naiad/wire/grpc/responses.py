"""The header blocks of gRPC responses, and the frames of the usual response in one piece.

Nothing here uses the peer's header table, so the same bytes serve every connection. Source: gRPC's "gRPC over HTTP/2",
section Responses; RFC 7541 for the literals.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from naiad.wire.grpc.compression import ACCEPTED, IDENTITY
from naiad.wire.grpc.messages import PREFIX_BYTES
from naiad.wire.grpc.status import Status, encode_text
from naiad.wire.http2.frames import END_HEADERS, END_STREAM, HEADERS

# Entry 8 of the static table (RFC 7541, appendix A).
_STATUS_200: Final = b"\x88"


def literal(name: bytes, value: bytes) -> bytes:
    """A header field that neither uses nor changes the header table."""
    return b"\x00" + _integer(len(name)) + name + _integer(len(value)) + value


def _integer(value: int) -> bytes:
    """A length as HPACK writes it, with a prefix of seven bits and no Huffman code."""
    if value < 127:
        return bytes((value,))
    encoded = bytearray((127,))
    value -= 127
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_CONTENT_TYPE: Final = literal(b"content-type", b"application/grpc")
_OK: Final = literal(b"grpc-status", b"0")
OPENING: Final = _STATUS_200 + _CONTENT_TYPE
"""The block before the first message of an uncompressed response."""


def opening(encoding: str) -> bytes:
    """The block before the first message."""
    return OPENING if encoding == IDENTITY else OPENING + literal(b"grpc-encoding", encoding.encode())


Fields = Sequence[tuple[str, str]]
"""Trailing metadata of visible ASCII, in lower case."""


def closing(code: int, text: str, fields: Fields = ()) -> bytes:
    """The block behind the last message."""
    if not code and not text and not fields:
        return _OK
    block = literal(b"grpc-status", b"%d" % code)
    if text:
        block += literal(b"grpc-message", encode_text(text))
    if code == Status.UNIMPLEMENTED:
        # So that a caller with an encoding that is not served learns which are.
        block += literal(b"grpc-accept-encoding", ACCEPTED.encode())
    for name, value in fields:
        block += literal(name.encode(), value.encode())
    return block


def only(code: int, text: str, fields: Fields = ()) -> bytes:
    """The only block of a response without messages."""
    return OPENING + closing(code, text, fields)


def plain_http(status: int) -> bytes:
    """The only block of a response to a request that is no gRPC call."""
    return literal(b":status", b"%d" % status) + literal(b"content-length", b"0")


def _head(block: bytes, flags: int) -> bytes:
    return len(block).to_bytes(3, "big") + bytes((HEADERS, flags))


# HEADERS, then the head of DATA and the prefix of the message, in one step.
_BEFORE: Final = struct.Struct(f">5sI{len(OPENING)}sIBIBI")
_AFTER: Final = struct.Struct(f">5sI{len(_OK)}s")
_pack_before = _BEFORE.pack
_pack_after = _AFTER.pack
_OPENING_HEAD: Final = _head(OPENING, END_HEADERS)
_CLOSING_HEAD: Final = _head(_OK, END_HEADERS | END_STREAM)


def whole_response(stream_id: int, parts: Sequence[Any], size: int) -> bytes:
    """All frames of a response with status OK and one message of ``size`` bytes, which fits one frame."""
    # The type of DATA is 0, so its length alone fills the first word.
    return b"".join(
        (
            _pack_before(_OPENING_HEAD, stream_id, OPENING, size + PREFIX_BYTES << 8, 0, stream_id, 0, size),
            *parts,
            _pack_after(_CLOSING_HEAD, stream_id, _OK),
        )
    )
