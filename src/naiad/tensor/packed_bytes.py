"""BYTES tensors that stay serialised on their way through the server.

To make an object of each element and to serialise it again takes a hundred times as long as to pass the bytes on. So
a large tensor travels as it came, and is unpacked where its elements are needed (a framework, or a JSON response).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard, cast

import numpy as np

from naiad.tensor.bytes_codec import Raw, check_strings, decode_bytes, encode_bytes, have_equal_lengths

PACKED_STRINGS: Final = 1 << 7
PACKED_BYTES: Final = 1 << 16
"""The numbers of elements and of bytes from which a tensor stays packed."""
AT_ONCE_STRINGS: Final = 1 << 13
"""The most elements that are checked on the event loop, which takes a millisecond."""

Array = np.ndarray[Any, Any]


class PackedStrings:
    """A serialised BYTES tensor. Takes the place of an array in requests and responses; to numpy it is that array.

    Attributes:
        raw: each element with its length of 4 bytes before it.
        shape, size, ndim, dtype: as of the array of ``bytes`` objects.
        nbytes: of ``raw``.
        place: names the tensor in errors.
        is_checked: whether it is known to have the elements of its shape.
    """

    __slots__ = ("_rows", "is_checked", "nbytes", "place", "raw", "shape", "size")
    dtype: Final = np.dtype(np.object_)

    def __init__(
        self, raw: Raw, shape: Sequence[int], place: str, is_checked: bool = True, rows: Array | None = None
    ) -> None:
        """``rows``: where each row of the first dimension begins, and the last one ends."""
        self.raw = raw
        self.nbytes = len(raw)
        self.shape = tuple(shape)
        self.size = math.prod(self.shape)
        self.place = place
        self.is_checked = is_checked
        self._rows = rows

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def check(self) -> None:
        """Check that it has whole elements, as many as its shape has.

        Raises:
            InvalidArgumentError: it does not; as ``decode_bytes``.
        """
        check_strings(self.raw, self.size, self.place)
        self.is_checked = True

    def unpack(self) -> Array:
        """The array of ``bytes`` objects; errors as ``check``."""
        return decode_bytes(self.raw, self.size, self.place).reshape(self.shape)

    def __getitem__(self, rows: slice) -> PackedStrings:
        """Consecutive rows of the first dimension, sharing the bytes."""
        begin, end, step = rows.indices(self.shape[0])
        if step != 1:
            raise IndexError(f"of a packed tensor there are rows one behind the other, not every {step}.")
        # Once for all slices: a batch is cut into the rows of its requests.
        if self._rows is None:
            self._rows = row_starts(self.raw, self.shape)
        end = max(begin, end)
        starts = self._rows[begin : end + 1]
        # A view: the rows share the bytes of the whole tensor.
        raw = memoryview(self.raw)[int(starts[0]) : int(starts[-1])]
        return PackedStrings(raw, (end - begin, *self.shape[1:]), self.place, self.is_checked, starts - starts[0])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.unpack()

    @property
    def flat(self) -> Iterator[bytes]:
        """The elements, one after the other."""
        flat, pos = memoryview(self.raw), 0
        while pos + 4 <= len(flat):
            begin = pos + 4
            pos = begin + int.from_bytes(flat[pos:begin], "little")
            yield bytes(flat[begin:pos])

    def equals(self, other: PackedStrings) -> bool:
        """Whether all elements are the same."""
        return np.array_equal(np.frombuffer(self.raw, np.uint8), np.frombuffer(other.raw, np.uint8))

    def reshape(self, shape: Sequence[int] | int) -> PackedStrings:
        """The same elements in another shape; -1 for a single dimension.

        Raises:
            ValueError: it has another number of elements.
        """
        shape = (self.size,) if isinstance(shape, int) else shape
        if math.prod(shape) != self.size:
            raise ValueError(f"cannot reshape {self.size} elements into shape {tuple(shape)}")
        # Row starts hold as long as the first dimension stays.
        rows = self._rows if shape and self.shape and shape[0] == self.shape[0] else None
        return PackedStrings(self.raw, shape, self.place, self.is_checked, rows)

    def copy(self) -> PackedStrings:
        """A copy in memory of its own."""
        return PackedStrings(bytes(self.raw), self.shape, self.place, self.is_checked)


PACKED: Final[type[object]] = PackedStrings
"""The class, for identity tests: they cost less than ``isinstance``."""


def stays_packed(size: int, elements: int) -> bool:
    """Whether a serialised tensor of ``size`` bytes stays packed."""
    return elements >= PACKED_STRINGS or size >= PACKED_BYTES


def is_packed(array: object) -> TypeGuard[PackedStrings]:
    """Whether an array is a packed tensor."""
    return isinstance(array, PackedStrings)


def as_strings(packed: PackedStrings) -> Array:
    """The tensor, typed as the array whose place it takes."""
    return cast(Array, packed)


def unpacked(array: Array) -> Array:
    """The elements of a tensor that may be packed."""
    return array.unpack() if is_packed(array) else array


def serialised(array: Array) -> Raw:
    """The bytes of a BYTES tensor, packed or not."""
    return cast(PackedStrings, array).raw if type(array) is PACKED else encode_bytes(array)


def with_unpacked(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """The same tensors, none of them packed."""
    if not any(is_packed(array) for array in arrays.values()):
        return arrays
    return {name: unpacked(array) for name, array in arrays.items()}


def packed_if_large(array: Array, place: str) -> Array:
    """An array of ``bytes`` objects, packed if it is large. For threads: it may take long."""
    if is_packed(array) or array.dtype != PackedStrings.dtype or not array.ndim:
        return array
    elements = array.ravel().tolist()
    # Before anything is serialised: most arrays are small.
    if not stays_packed(sum(map(len, elements)), array.size):
        return array
    lengths = np.fromiter(map(len, elements), np.int64, array.size)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths + 4)])
    row = array.size // array.shape[0] if array.shape[0] else 0
    rows = ends[:: row or 1]
    return as_strings(PackedStrings(memoryview(encode_bytes(array)), array.shape, place, True, rows))


def row_starts(raw: Raw, shape: Sequence[int]) -> Array:
    """Where each row of a serialised tensor begins, and the last one ends."""
    count, each = shape[0], math.prod(shape[1:])
    # Without a loop over the elements where all have the same length.
    if count and len(raw) % count == 0 and have_equal_lengths(raw, count * each):
        return np.arange(count + 1, dtype=np.int64) * (len(raw) // count)
    starts = np.zeros(count + 1, np.int64)
    flat, pos = memoryview(raw), 0
    for row in range(count):
        for _ in range(each):
            pos += 4 + int.from_bytes(flat[pos : pos + 4], "little")
        starts[row + 1] = pos
    return starts
