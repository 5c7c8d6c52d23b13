"""BYTES tensors on the wire: each element is a 4-byte little-endian length followed by that many bytes.

Source: protocol section "Tensor Data Types" and the binary tensor data extension.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from naiad.errors import InvalidArgumentError

_LENGTH = struct.Struct("<I")


def decode_bytes(raw: bytes | bytearray | memoryview, elements: int, place: str) -> np.ndarray[Any, Any]:
    """The elements of a serialised BYTES tensor as a flat object array of ``bytes``.

    Args:
        raw: the serialised tensor, whole.
        elements: how many elements its shape promises.
        place: named in errors, such as ``inference input 'A' for model 'm'``.

    Raises:
        InvalidArgumentError: a length runs past the end, or the number of elements is another.
    """
    size = len(raw)
    unpack = _LENGTH.unpack_from
    found: list[bytes] = []
    pos = 0
    while pos < size:
        if len(found) == elements:
            raise _too_many(elements, place)
        if size - pos < 4:
            raise InvalidArgumentError(
                f"incomplete string length indicator for {place}, expecting 4 bytes but only {size - pos} bytes "
                "available. Please make sure the string length indicator is in one buffer."
            )
        length = unpack(raw, pos)[0]
        pos += 4
        if size - pos < length:
            raise InvalidArgumentError(
                f"incomplete string data for {place}, expecting string of length {length} but only "
                f"{size - pos} bytes available"
            )
        found.append(bytes(raw[pos : pos + length]))
        pos += length
    return string_array(found, elements, place)


def string_array(found: list[bytes], elements: int, place: str) -> np.ndarray[Any, Any]:
    """Elements as a flat object array; arguments and errors as ``decode_bytes``."""
    if len(found) > elements:
        raise _too_many(elements, place)
    if len(found) < elements:
        raise InvalidArgumentError(f"expected {elements} string elements for {place}, got {len(found)}")
    array = np.empty(elements, np.object_)
    array[:] = found
    return array


def _too_many(elements: int, place: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"unexpected number of string elements {elements + 1} for {place}, expecting {elements}"
    )


def encode_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """Serialise an object array of ``bytes`` (any shape, row-major)."""
    pack = _LENGTH.pack
    parts: list[bytes] = []
    for element in array.ravel().tolist():
        parts.append(pack(len(element)))
        parts.append(element)
    return b"".join(parts)
