"""Very long typed contents of a ``ModelInferRequest``, and raw tensors in unusual places, read from its bytes.

Protobuf makes an object of each string without releasing the interpreter, and its lists return numbers one by one. Here
a thread reads them in steps, so the loop is never blocked: strings become a serialised tensor, numbers an array. The
rest of the message is small.

Source: protobuf's "Encoding" page, and the fields of ``InferTensorContents``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from naiad.request import Array
from naiad.tensor.bytes_codec import BLOCK_BYTES, BLOCK_STRINGS, check_count
from naiad.tensor.packed_bytes import PackedStrings, as_strings
from naiad.wire.proto_fields import field_head, read_varint
from naiad.wire.v2.contents import KINDS, narrowed
from naiad.wire.v2.header import InputHeader

LONG_STRINGS_BYTES: Final = 1 << 14
LONG_NUMBERS_BYTES: Final = 1 << 16
LONG_BYTES: Final = 1 << 22
"""Contents with at least this many bytes together are long: strings, numbers of variable size, and numbers of fixed
size, which are read quickly."""
MANY_STRINGS: Final = 1 << 10
_MAX_LOOKS: Final = 1 << 12

_DELIMITED, _VARINT, _FIXED64, _FIXED32, _GROUP, _END_GROUP = 2, 0, 1, 5, 3, 4
_INPUT, _RAW_INPUT, _CONTENTS, _STRINGS = 5, 7, 5, 8
_STRING_TAG: Final = _STRINGS << 3 | _DELIMITED
_FIELDS: Final = tuple(KINDS)
"""By their numbers, from 1 on."""
_FIXED: Final = {"fp32_contents": _FIXED32, "fp64_contents": _FIXED64}
_AS_IN_MEMORY: Final = frozenset((1, 6, 7))
_LENGTH: Final = struct.Struct("<I")
_SHORT: Final = tuple(_LENGTH.pack(size) for size in range(128))
_NUMPY: Final = {
    "bool_contents": np.bool_,
    "int_contents": np.int32,
    "int64_contents": np.int64,
    "uint_contents": np.uint32,
    "uint64_contents": np.uint64,
    "fp32_contents": np.float32,
    "fp64_contents": np.float64,
}

Body = bytes | bytearray | memoryview


class TypedValues(NamedTuple):
    """The contents of one input: ``filled`` are the lists that have elements, the first of them ``size`` elements.

    ``data``: of the first list; the serialised tensor for strings, else a flat array.
    """

    filled: tuple[str, ...]
    size: int
    data: Any

    def array(self, given: InputHeader, place: str) -> Array:
        """The input as an array; arguments and errors as ``decode_contents``."""
        if not given.dtype.is_bytes:
            return narrowed(self.data if self.size else np.empty(0, given.dtype.numpy), given).reshape(given.shape)
        check_count(self.size, given.elements, place)
        return as_strings(PackedStrings(self.data, given.shape, place))


class ReadContents(NamedTuple):
    """A message whose contents of inputs and raw tensors were taken out, so that these fields are empty in it.

    Attributes:
        inputs: the contents of each input, None for an input without contents.
        raws: the raw tensors as views of the message.
    """

    message: bytes
    inputs: list[TypedValues | None]
    raws: list[memoryview]


# Looking, on the event loop


def has_long_contents(message: Body) -> bool:
    """Whether a message holds typed contents that take long to read. Looks at few of its bytes."""
    flat = memoryview(message)
    # A bounded number of looks: a message that would take more counts as long.
    looks = _Looks()
    try:
        for number, begin, end in looks.fields(flat, 0, len(flat)):
            if number == _INPUT:
                for inner, first, last in looks.fields(flat, begin, end):
                    if inner == _CONTENTS and first < last and looks.are_long(flat, first, last):
                        return True
    except (IndexError, ValueError):
        # Protobuf raises the error for the rest; little of the part before it is long.
        return len(flat) >= LONG_NUMBERS_BYTES
    return False


class _Looks:
    """The position in the message and the contents found so far."""

    def __init__(self) -> None:
        self._left = _MAX_LOOKS
        self._strings = self._numbers = self._all = 0

    def fields(self, flat: memoryview, at: int, end: int) -> Any:
        """Number, begin and end of each field of variable size."""
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise ValueError("a message with very many fields")
            tag, at = read_varint(flat, at)
            after, begin = _value(flat, at, tag & 7)
            if tag & 7 == _DELIMITED:
                yield tag >> 3, begin, after
            at = after

    def are_long(self, flat: memoryview, begin: int, end: int) -> bool:
        """Whether these contents and the earlier ones are long together."""
        number = flat[begin] >> 3
        self._all += end - begin
        if self._all >= LONG_BYTES:
            return True
        if number in _AS_IN_MEMORY:
            return False
        if number < _STRINGS:
            self._numbers += end - begin
            return self._numbers >= LONG_NUMBERS_BYTES
        self._strings += end - begin
        return self._strings >= LONG_STRINGS_BYTES and _has_many_strings(flat, begin, end)


def _has_many_strings(flat: memoryview, at: int, end: int) -> bool:
    for _ in range(MANY_STRINGS):
        if at >= end:
            return False
        tag, at = read_varint(flat, at)
        at, _ = _value(flat, at, tag & 7)
    return True


def _value(flat: memoryview, at: int, wire_type: int) -> tuple[int, int]:
    """Where a value ends and, for one of variable size, where its content begins."""
    if wire_type == _DELIMITED:
        size, at = read_varint(flat, at)
        if at + size > len(flat):
            raise ValueError("a field runs past the end")
        return at + size, at
    if wire_type == _VARINT:
        after = read_varint(flat, at)[1]
        return after, at
    if wire_type in (_GROUP, _END_GROUP):
        return at, at
    if wire_type not in (_FIXED64, _FIXED32):
        raise ValueError(f"no value has the wire type {wire_type}")
    after = at + (8 if wire_type == _FIXED64 else 4)
    if after > len(flat):
        raise ValueError("a field runs past the end")
    return after, at


# Reading, in a thread


def read_contents(message: Body) -> ReadContents:
    """Take the contents out of a message.

    Raises:
        ValueError: it is no message.
    """
    flat = memoryview(message)
    left: list[bytes] = []
    inputs: list[TypedValues | None] = []
    raws: list[memoryview] = []
    try:
        for tag, begin, first, end in _fields(flat, 0, len(flat)):
            if tag == _INPUT << 3 | _DELIMITED:
                described, values = _read_input(flat, first, end)
                left.append(field_head(_INPUT, len(described)) + described)
                inputs.append(values)
            elif tag == _RAW_INPUT << 3 | _DELIMITED:
                # Emptied and not left out: raw tensors belong to inputs by their order.
                left.append(field_head(_RAW_INPUT, 0))
                raws.append(flat[first:end])
            else:
                left.append(bytes(flat[begin:end]))
    except IndexError:
        raise ValueError("the message ends in the middle") from None
    return ReadContents(b"".join(left), inputs, raws)


def _fields(flat: memoryview, at: int, end: int) -> Any:
    """Of each field its tag, where it begins, where its content does and where it ends. A group is one field."""
    depth = begin = outer = 0
    while at < end:
        begin = at if not depth else begin
        tag, at = read_varint(flat, at)
        outer = tag if not depth else outer
        wire_type = tag & 7
        after, first = _value(flat, at, wire_type)
        depth += (wire_type == _GROUP) - (wire_type == _END_GROUP)
        if after > end or depth < 0 or not tag >> 3:
            raise ValueError("a field runs past the end, or is none")
        at = after
        if not depth:
            yield outer, begin, first, after
    if depth:
        raise ValueError("a group has no end")


def _read_input(flat: memoryview, at: int, end: int) -> tuple[bytes, TypedValues | None]:
    """An input without its contents, and the contents."""
    left: list[bytes] = []
    found: _Contents | None = None
    for tag, begin, first, after in _fields(flat, at, end):
        if tag == _CONTENTS << 3 | _DELIMITED:
            found = found or _Contents()
            found.read(flat, first, after)
        else:
            left.append(bytes(flat[begin:after]))
    if found is None:
        return b"".join(left), None
    return b"".join(left) + field_head(_CONTENTS, 0), found.values()


class _Contents:
    """The lists of one ``InferTensorContents``, whose parts may come in any order and number."""

    def __init__(self) -> None:
        self._strings = bytearray()
        self._count = 0
        self._numbers: dict[str, bytearray] = {}

    def read(self, flat: memoryview, at: int, end: int) -> None:
        """Add the bytes between two positions."""
        at = self._read_runs(flat, at, end)
        while at < end:
            if flat[at] == _STRING_TAG:
                at = self._read_strings(flat, at, end)
                continue
            # Runs of strings are read in one step above; other fields are few.
            tag, _, first, after = next(_fields(flat, at, end))
            self._add(tag, flat[first:after])
            at = after

    def _add(self, tag: int, content: memoryview) -> None:
        number, wire_type = tag >> 3, tag & 7
        if tag == _STRING_TAG:
            self._strings += _LENGTH.pack(len(content)) + content
            self._count += 1
        if not 0 < number < _STRINGS:
            return
        name = _FIELDS[number - 1]
        # Packed, or one by one, which is allowed as well.
        if wire_type in (_DELIMITED, _FIXED.get(name, _VARINT)):
            self._numbers.setdefault(name, bytearray()).extend(content)

    def _read_runs(self, flat: memoryview, at: int, end: int) -> int:
        """Add the short strings of one length at the beginning; returns the position after them."""
        if at + 2 > end or flat[at] != _STRING_TAG or flat[at + 1] > 127:
            return at
        size = flat[at + 1]
        stride = 2 + size
        most = BLOCK_BYTES // stride
        while count := min((end - at) // stride, most):
            # Strings of one length lie like the rows of a matrix: checked and copied without an object for each.
            rows: Array = np.frombuffer(flat[at : at + count * stride], np.uint8).reshape(count, stride)
            if not ((rows[:, 0] == _STRING_TAG).all() and (rows[:, 1] == size).all()):
                break
            made = np.empty((count, 4 + size), np.uint8)
            made[:, :4] = np.frombuffer(_SHORT[size], np.uint8)
            made[:, 4:] = rows[:, 2:]
            self._strings += made.reshape(-1).data
            self._count += count
            at += count * stride
        return at

    def _read_strings(self, flat: memoryview, at: int, end: int) -> int:
        """Add consecutive strings; returns the position after them."""
        while at < end and flat[at] == _STRING_TAG:
            block = bytes(flat[at : min(at + BLOCK_BYTES, end)])
            done = self._read_block(block)
            if not done:
                # One that is longer than a block.
                size, first = read_varint(flat, at + 1)
                if first + size > end:
                    raise ValueError("a string runs past the end")
                self._strings += _LENGTH.pack(size)
                self._strings += flat[first : first + size]
                self._count += 1
                done = first + size - at
            at += done
        return at

    def _read_block(self, block: bytes) -> int:
        """Add the complete strings at the beginning of a block; returns their end."""
        limit, at = len(block), 0
        parts: list[bytes] = []
        add = parts.append
        try:
            # A bounded step, because the interpreter is not released within.
            for _ in range(BLOCK_STRINGS):
                if block[at] != _STRING_TAG:
                    break
                size = block[at + 1]
                begin = at + 2
                if size > 127:
                    size, begin = read_varint(block, at + 1)
                after = begin + size
                if after > limit:
                    break
                add(_SHORT[size] if size < 128 else _LENGTH.pack(size))
                add(block[begin:after])
                at = after
        except IndexError:
            # The rest is in the next block.
            pass
        self._strings += b"".join(parts)
        self._count += len(parts) // 2
        return at

    def values(self) -> TypedValues:
        """What was read; the elements of the first list that has any."""
        filled = tuple(name for name in _FIELDS if self._numbers.get(name))
        if filled:
            array = _array(filled[0], self._numbers[filled[0]])
            return TypedValues((*filled, *self._strings_field()), array.size, array)
        return TypedValues(self._strings_field(), self._count, self._strings if self._count else b"")

    def _strings_field(self) -> tuple[str, ...]:
        return _FIELDS[_STRINGS - 1 :] if self._count else ()


def _array(name: str, raw: bytearray) -> Array:
    if name in _FIXED:
        if len(raw) % np.dtype(_NUMPY[name]).itemsize:
            raise ValueError("a packed list holds no whole numbers")
        return np.frombuffer(raw, _NUMPY[name])
    flat: Array = np.frombuffer(raw, np.uint8)
    if flat[-1] > 127:
        raise ValueError("a packed list ends in the middle of a number")
    narrow = _NARROW[name]
    if (flat < 128).all():
        # Each has one byte.
        return narrow(flat)
    parts = []
    at = 0
    while at < flat.size:
        block = flat[at : at + BLOCK_BYTES]
        ends = np.flatnonzero(block < 128)
        if not ends.size:
            raise ValueError("a number has more than ten bytes")
        parts.append(narrow(_numbers(block, ends)))
        at += int(ends[-1]) + 1
    return np.concatenate(parts)


def _numbers(block: Array, ends: Array) -> Array:
    """The numbers whose last bytes are at ``ends``."""
    begins = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
    sizes = ends - begins + 1
    longest = int(sizes.max())
    if longest > 10:
        raise ValueError("a number has more than ten bytes")
    found = np.zeros(ends.size, np.uint64)
    for digit in range(longest):
        has = np.flatnonzero(sizes > digit)
        found[has] |= (block[begins[has] + digit] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * digit)
    return found


_NARROW: Final[dict[str, Callable[[Array], Array]]] = {
    "bool_contents": lambda found: found != 0,
    # Protobuf writes a negative int32 with 64 bits, of which the lower half counts.
    "int_contents": lambda found: found.astype(np.uint32).view(np.int32),
    "int64_contents": lambda found: found.astype(np.uint64).view(np.int64),
    "uint_contents": lambda found: found.astype(np.uint32),
    "uint64_contents": lambda found: found.astype(np.uint64),
}
