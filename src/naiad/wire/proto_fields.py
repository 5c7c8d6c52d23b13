"""Fields of protobuf messages as bytes: the few kinds that are written and recognised without a message object.

Source: protobuf's "Encoding" page. A field is a tag (number and wire type) and its value; values of variable size have
their length in front, as a varint: seven bits a byte, lowest first, the high bit set on all but the last byte.
"""

from __future__ import annotations

from typing import Final

MAX_LENGTH: Final = 2**31 - 1
"""The largest message and the longest field, in bytes."""

_DELIMITED: Final = 2
_FIXED: Final = {1: 8, 5: 4}
_VARINT, _GROUP, _END_GROUP = 0, 3, 4


def varint(number: int) -> bytes:
    """A number of 0 or more."""
    if number < 128:
        return bytes((number,))
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def field_head(number: int, size: int) -> bytes:
    """The tag and length before the ``size`` bytes of a string, a block of bytes or a message in field ``number``."""
    return varint(number << 3 | _DELIMITED) + varint(size)


def field(number: int, value: bytes) -> bytes:
    """A string, a block of bytes or a message in the field ``number``; nothing at all when it is empty."""
    return field_head(number, len(value)) + value if value else b""


def read_varint(message: bytes | memoryview, at: int) -> tuple[int, int]:
    """The varint at ``at`` and where it ends.

    Raises:
        ValueError: it is longer than ten bytes.
        IndexError: the message ends in the middle.
    """
    number = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError(f"the number before byte {at} has more than ten bytes")


def has_more_fields(message: bytes | bytearray | memoryview, limit: int) -> bool:
    """Whether a message begins with more than ``limit`` fields, fields inside groups included.

    Stops at the first byte that begins no field, and skips the content of fields.
    """
    found = at = 0
    flat = memoryview(message)
    try:
        while at < len(flat) and found <= limit:
            tag, at = read_varint(flat, at)
            at = _after_value(flat, at, tag & 7)
            found += 1
    except (IndexError, ValueError):
        # No message: the parser raises the error.
        return False
    return found > limit


def _after_value(message: memoryview, at: int, wire_type: int) -> int:
    if wire_type == _DELIMITED:
        size, at = read_varint(message, at)
        return at + size
    if wire_type == _VARINT:
        return read_varint(message, at)[1]
    if wire_type in (_GROUP, _END_GROUP):
        return at
    if wire_type not in _FIXED:
        raise ValueError(f"no value has the wire type {wire_type}")
    return at + _FIXED[wire_type]
