"""BYTES tensors: arrays of ``bytes`` objects, each element on the wire with its length of four bytes in front."""

from __future__ import annotations

import struct
from typing import Sequence

import numpy as np

from .errors import TritonModelException
from .types import Array

LENGTH = struct.Struct("<I")


def encode_strings(array: Array) -> bytes:
    """Serialise the elements in C order; an element other than ``bytes`` as its ``str`` in UTF-8."""
    parts: list[bytes] = []
    pack = LENGTH.pack
    for item in array.ravel().tolist():
        data = item if isinstance(item, bytes) else str(item).encode("utf-8")
        parts.append(pack(len(data)))
        parts.append(data)
    return b"".join(parts)


def decode_strings(data: bytes | bytearray | memoryview, shape: Sequence[int]) -> Array:
    """The object array of a given shape.

    Raises:
        TritonModelException: the bytes do not hold whole elements.
        ValueError: they hold another number of elements than the shape.
    """
    elements = _elements(data)
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array.reshape(shape)


def _elements(data: bytes | bytearray | memoryview) -> list[bytes]:
    # One copy of the whole: a slice of ``bytes`` is an element already, a slice of a view would be copied again.
    whole = bytes(data)
    at, end = 0, len(whole)
    elements: list[bytes] = []
    unpack = LENGTH.unpack_from
    while at < end:
        if at + 4 > end:
            raise TritonModelException("Invalid bytes tensor data: incomplete length field")
        first = at + 4
        at = first + unpack(whole, at)[0]
        if at > end:
            raise TritonModelException("Invalid bytes tensor data: string extends beyond buffer")
        elements.append(whole[first:at])
    return elements


def serialize_byte_tensor(input_tensor: Array) -> bytes | Sequence[bytes] | None:
    """The serialised elements of an array of ``bytes``, ``str`` or ``np.bytes_``; ``()`` for an empty array, None for
    any other dtype."""
    if input_tensor.size == 0:
        # The reference's function returns a tuple here, too.
        return ()
    if input_tensor.dtype == np.object_ or input_tensor.dtype.type is np.bytes_:
        return encode_strings(input_tensor)
    return None


def deserialize_bytes_tensor(encoded_tensor: bytes | bytearray | memoryview) -> Array:
    """The elements as an object array of one dimension."""
    return decode_strings(encoded_tensor, (-1,))
