"""BYTES tensors on the wire: each element is a 4-byte little-endian length followed by that many bytes.

Source: protocol section "Tensor Data Types" and the binary tensor data extension.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from naiad.errors import InvalidArgumentError

_LENGTH = struct.Struct("<I")
_OBJECTS: Final = np.dtype(np.object_)
BLOCK_BYTES: Final = 1 << 20
BLOCK_STRINGS: Final = 1 << 13
"""The size of a step in which large tensors are decoded and encoded."""

Raw = bytes | bytearray | memoryview


def decode_bytes(raw: Raw, elements: int, place: str) -> np.ndarray[Any, Any]:
    """The elements of a serialised BYTES tensor as a flat object array of ``bytes``.

    Args:
        raw: the serialised tensor, whole.
        elements: how many elements its shape promises.
        place: named in errors, such as ``inference input 'A' for model 'm'``.

    Raises:
        InvalidArgumentError: a length runs past the end, or the number of elements is another.
    """
    if len(raw) > BLOCK_BYTES or elements > BLOCK_STRINGS:
        return _decode_in_blocks(raw, elements, place)
    whole = raw if type(raw) is bytes else bytes(raw)
    size = len(whole)
    unpack = _LENGTH.unpack_from
    found: list[bytes] = []
    add = found.append
    pos = 0
    try:
        for _ in range(elements):
            begin = pos + 4
            pos = begin + unpack(whole, pos)[0]
            # A slice past the end is short and no error: that shows below, where the sum differs from the size.
            add(whole[begin:pos])
    except struct.error:
        pos = -1
    # Why it differs is found out only now, by a second reading.
    if pos != size:
        raise _problem(whole, elements, place)
    return string_array(found, elements, place)


def _decode_in_blocks(raw: Raw, elements: int, place: str) -> np.ndarray[Any, Any]:
    """``decode_bytes`` in steps, between which other threads get the interpreter."""
    flat = memoryview(raw)
    unpack = _LENGTH.unpack_from
    # A shape that promises more elements than the bytes can hold must not cost memory.
    array = np.empty(min(elements, len(flat) // _LENGTH.size), np.object_)
    count = pos = 0
    while count < len(array) and pos + _LENGTH.size <= len(flat):
        block = bytes(flat[pos : pos + BLOCK_BYTES])
        limit = len(block)
        found: list[bytes] = []
        at = 0
        for _ in range(min(len(array) - count, BLOCK_STRINGS)):
            begin = at + 4
            if begin > limit or (end := begin + unpack(block, at)[0]) > limit:
                break
            found.append(block[begin:end])
            at = end
        if not found:
            # An element that is longer than a block, or is cut off.
            at = _LENGTH.size + unpack(block)[0]
            found.append(bytes(flat[pos + _LENGTH.size : pos + at]))
        array[count : count + len(found)] = found
        count += len(found)
        pos += at
    if count != elements or pos != len(flat):
        raise _problem(raw, elements, place)
    return array


def check_strings(raw: Raw, elements: int, place: str) -> None:
    """Check that a serialised BYTES tensor can be decoded; arguments and errors of ``decode_bytes``.

    Takes about 0.1 us for an element, and next to nothing where all of them have the same length.
    """
    if have_equal_lengths(raw, elements):
        return
    flat = memoryview(raw)
    unpack = _LENGTH.unpack_from
    count = pos = 0
    while count < elements and pos + _LENGTH.size <= len(flat):
        block = bytes(flat[pos : pos + BLOCK_BYTES])
        limit, at = len(block) - _LENGTH.size, 0
        for _ in range(min(elements - count, BLOCK_STRINGS)):
            # An element may end behind the block, but its length field has to lie within.
            if at > limit:
                break
            at += unpack(block, at)[0] + 4
            count += 1
        pos += at
    if count != elements or pos != len(flat):
        raise _problem(raw, elements, place)


def have_equal_lengths(raw: Raw, elements: int) -> bool:
    """Whether a serialised tensor has ``elements`` elements, all of the same length."""
    if not elements or len(raw) % elements or len(raw) < _LENGTH.size * elements:
        return False
    stride = len(raw) // elements
    # One comparison of all length fields, as if every element had the same size.
    lengths: np.ndarray[Any, Any] = np.ndarray((elements,), "<u4", raw, 0, (stride,))
    return bool((lengths == stride - _LENGTH.size).all())


def _problem(raw: Raw, elements: int, place: str) -> InvalidArgumentError:
    """The first error in a tensor, read from its beginning."""
    size = len(raw)
    count = pos = 0
    while pos < size:
        if count == elements:
            return _too_many(elements, place)
        if size - pos < 4:
            return InvalidArgumentError(
                f"incomplete string length indicator for {place}, expecting 4 bytes but only {size - pos} bytes "
                "available. Please make sure the string length indicator is in one buffer."
            )
        length = _LENGTH.unpack_from(raw, pos)[0]
        pos += 4
        if size - pos < length:
            return InvalidArgumentError(
                f"incomplete string data for {place}, expecting string of length {length} but only "
                f"{size - pos} bytes available"
            )
        pos += length
        count += 1
    return _too_few(elements, count, place)


def string_array(found: list[bytes], elements: int, place: str) -> np.ndarray[Any, Any]:
    """Elements as a flat object array; arguments and errors of ``decode_bytes``."""
    if len(found) != elements:
        check_count(len(found), elements, place)
    return np.array(found, _OBJECTS)


def check_count(found: int, elements: int, place: str) -> None:
    """Check the number of elements; arguments and errors of ``decode_bytes``."""
    if found > elements:
        raise _too_many(elements, place)
    if found < elements:
        raise _too_few(elements, found, place)


def _too_many(elements: int, place: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"unexpected number of string elements {elements + 1} for {place}, expecting {elements}"
    )


def _too_few(elements: int, found: int, place: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"expected {elements} string elements for {place}, got {found}")


def encode_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """Serialise an object array of ``bytes`` (any shape, row-major)."""
    if array.size > BLOCK_STRINGS:
        return _encode_in_blocks(array)
    pack = _LENGTH.pack
    parts: list[bytes] = []
    for element in array.ravel().tolist():
        parts.append(pack(len(element)))
        parts.append(element)
    return b"".join(parts)


def _encode_in_blocks(array: np.ndarray[Any, Any]) -> bytes:
    """``encode_bytes`` in steps, between which other threads get the interpreter."""
    flat = array.ravel()
    starts = range(0, array.size, BLOCK_STRINGS)
    return b"".join([encode_bytes(flat[begin : begin + BLOCK_STRINGS]) for begin in starts])
