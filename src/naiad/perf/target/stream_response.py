"""The little that the generator reads of a ``ModelStreamInferResponse``: its error, and whether it is the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from naiad.wire.proto_fields import read_varint

_ERROR, _INFER_RESPONSE = 1, 2
_PARAMETERS, _OUTPUTS, _RAW = 4, 5, 6
_FINAL: Final = b"triton_final_response"
# A map entry whose value is a message with the field bool_param at 1.
_TRUE: Final = b"\x12\x02\x08\x01"
_DELIMITED: Final = 2
_FIXED: Final = {1: 8, 5: 4}


class StreamResponse(NamedTuple):
    """One message of a stream.

    Attributes:
        error: its text; empty for a success.
        is_final: whether it is marked as the last response to its request.
        is_empty: whether it has no outputs: such a mark is no response of the model.
        infer_response: the ``ModelInferResponse`` in it.
    """

    error: str
    is_final: bool
    is_empty: bool
    infer_response: bytes


def read_stream_response(message: bytes) -> StreamResponse:
    """Read a message.

    Raises:
        ValueError, IndexError: it is no message of protobuf.
    """
    error, infer_response = "", b""
    for number, value in _fields(message):
        if number == _ERROR:
            error = value.decode("utf-8", "replace")
        elif number == _INFER_RESPONSE:
            infer_response = value
    is_final, is_empty = False, True
    for number, value in _fields(infer_response):
        if number == _PARAMETERS:
            is_final = is_final or (_FINAL in value and value.endswith(_TRUE))
        elif number in (_OUTPUTS, _RAW):
            is_empty = False
            break
    return StreamResponse(error, is_final, is_empty, infer_response)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and value of each field that is a string, bytes or a message."""
    at = 0
    while at < len(message):
        tag, at = read_varint(message, at)
        kind = tag & 7
        if kind == _DELIMITED:
            size, at = read_varint(message, at)
            yield tag >> 3, message[at : at + size]
            at += size
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            _, at = read_varint(message, at)
