"""Typed tensor data inside a request: ``InferTensorContents`` to an array.

Each of its lists serves one or several datatypes, and an input fills one list. FP16 and BF16 have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from naiad.errors import InvalidArgumentError
from naiad.request import Array
from naiad.tensor.bytes_codec import string_array
from naiad.wire.proto_fields import read_varint
from naiad.wire.v2.header import InputHeader


class TypedContents(NamedTuple):
    """The list of an input's contents that is filled; ``field`` "" when none is."""

    message: Any
    field: str

    @property
    def values(self) -> Any:
        """The elements."""
        return getattr(self.message, self.field) if self.field else ()

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(self.values)


class _Kind(NamedTuple):
    """``wire``: the datatype that errors name; ``memory``: packed elements are as the array has them."""

    wire: str
    serves: tuple[str, ...]
    memory: bool = False


# In the order of the fields' numbers, which decides the list that an error is about.
KINDS: Final = {
    "bool_contents": _Kind("BOOL", ("BOOL",), True),
    "int_contents": _Kind("INT32", ("INT8", "INT16", "INT32")),
    "int64_contents": _Kind("INT64", ("INT64",)),
    "uint_contents": _Kind("UINT32", ("UINT8", "UINT16", "UINT32")),
    "uint64_contents": _Kind("UINT64", ("UINT64",)),
    "fp32_contents": _Kind("FP32", ("FP32",), True),
    "fp64_contents": _Kind("FP64", ("FP64",), True),
    "bytes_contents": _Kind("BYTES", ("BYTES",)),
}


def find_contents(message: Any, given: InputHeader, model: str) -> TypedContents:
    """The filled list of a message ``InferTensorContents``.

    Raises:
        InvalidArgumentError: that list is not for the datatype of the input, or there is another one.
    """
    return TypedContents(message, only_field([name for name in KINDS if len(getattr(message, name))], given, model))


def only_field(filled: Sequence[str], given: InputHeader, model: str) -> str:
    """The only one of the ``filled`` lists, "" for none; errors as ``find_contents``.

    Args:
        filled: in the order of the fields' numbers.
    """
    if not filled:
        return ""
    field = filled[0]
    unexpected = f"unexpected explicit tensor data for input tensor '{given.name}' for model '{model}'"
    if given.dtype.wire not in KINDS[field].serves:
        raise InvalidArgumentError(
            f"{unexpected} of type '{KINDS[field].wire}', expected datatype '{given.dtype.wire}'"
        )
    if len(filled) > 1:
        raise InvalidArgumentError(f"{unexpected}, binary data was already supplied.")
    return field


def decode_contents(contents: TypedContents, given: InputHeader, place: str) -> Array:
    """The elements as an array of the input's shape. May remove the other fields from the message.

    Args:
        contents: the result of ``find_contents``; for a datatype of fixed size, with as many elements as the shape has.
        given: the input.
        place: named in errors, such as ``inference input 'A' for model 'm'``.

    Raises:
        InvalidArgumentError: a number is outside the range of the datatype, or there are too few or too many strings.
    """
    if given.dtype.is_bytes:
        # The same error as below, without an object for each string.
        if contents.size > given.elements:
            return string_array([b""] * (given.elements + 1), given.elements, place)
        flat = string_array(list(contents.values), given.elements, place)
    elif contents.field and KINDS[contents.field].memory:
        flat = _from_memory(contents, given)
    else:
        flat = _from_numbers(contents, given)
    return flat.reshape(given.shape)


def _from_memory(contents: TypedContents, given: InputHeader) -> Array:
    """Protobuf packs these as an array has them, and copies a thousand times faster than it gives out elements."""
    message = contents.message
    # What is left is one field: a tag of one byte, a length, the elements.
    for other in KINDS.keys() - {contents.field}:
        message.ClearField(other)
    message.DiscardUnknownFields()
    raw = message.SerializeToString()
    _, start = read_varint(raw, 1)
    return np.frombuffer(raw, given.dtype.numpy, given.elements, start)


def _from_numbers(contents: TypedContents, given: InputHeader) -> Array:
    return narrowed(
        np.fromiter(contents.values, np.uint64 if given.dtype.numpy.kind == "u" else np.int64, contents.size), given
    )


def narrowed(wide: Array, given: InputHeader) -> Array:
    """Numbers in the datatype of the input.

    Raises:
        InvalidArgumentError: one is outside of its range.
    """
    if wide.dtype == given.dtype.numpy:
        return wide
    narrow = wide.astype(given.dtype.numpy)
    # A list of 32 or 64 bits holds nothing that its own datatype does not.
    if given.dtype.itemsize < 4 and not np.array_equal(wide, narrow):
        index = int(np.flatnonzero(wide != narrow)[0])
        info = np.iinfo(given.dtype.numpy.name)
        raise InvalidArgumentError(
            f"invalid contents for input '{given.name}': {given.dtype.wire} holds {info.min} to {info.max}, found "
            f"{wide[index]} at element {index}"
        )
    return narrow
