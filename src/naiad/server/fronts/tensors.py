"""Tensors on the link: a layout says what the tensors of many requests have in common, and is sent once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from naiad.errors import InternalError
from naiad.request import Array
from naiad.server.fronts.link import SEGMENT_BYTES, Link, Place
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_NUMPY, BY_WIRE, BYTES, DataType
from naiad.tensor.packed_bytes import PackedStrings, as_strings, serialised, stays_packed
from naiad.worker.ipc.lent_tensors import MemoryFinder

MAX_LAYOUTS: Final = 1024
"""Layouts that a sender remembers; then all are forgotten on both sides, and numbers go on."""

_ndarray = np.ndarray
_OBJECTS: Final = np.dtype(np.object_)

Layout = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Name, datatype and shape of each tensor, in order."""


class TensorLayout(NamedTuple):
    """One tensor of a received layout."""

    name: str
    dtype: DataType
    numpy: np.dtype[Any]
    shape: tuple[int, ...]


class LayoutSender:
    """Numbers the layouts of what is sent, and sends each one before it is used.

    Args:
        kind: of the message that sends a layout.

    Attributes:
        is_full: the layouts should be forgotten on both sides.
    """

    def __init__(self, link: Link, kind: int, first: int = 1) -> None:
        self._link = link
        self._kind = kind
        self._next = first
        self._numbers: dict[object, int] = {}
        self.is_full = False

    def clear(self) -> None:
        """Forget all layouts."""
        self._numbers.clear()
        self.is_full = False

    def send(
        self, arrays: Mapping[str, Array], finder: MemoryFinder | None = None, model: int = 0
    ) -> tuple[int, list[Place]]:
        """The number of the layout of ``arrays``, and their places; further arguments as for ``Link.place_array``.

        Raises:
            InternalError: an array has a dtype that is no datatype of the protocol.
        """
        # Written out for one tensor, the most common case.
        if len(arrays) == 1:
            ((name, array),) = arrays.items()
            dtype = array.dtype
            number = self._numbers.get((name, dtype, array.shape))
            if number is not None and dtype is not _OBJECTS and array.nbytes < SEGMENT_BYTES:
                return number, [array.tobytes()]
        key = tuple([(name, array.dtype, array.shape) for name, array in arrays.items()])
        number = self._numbers.get(key if len(key) > 1 else key[0] if key else ())
        if number is None:
            number = self._send_layout(key)
        link = self._link
        return number, [
            link.place(serialised(array)) if array.dtype is _OBJECTS else link.place_array(array, finder, model)
            for array in arrays.values()
        ]

    def _send_layout(self, key: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]) -> int:
        number = self._numbers[key if len(key) > 1 else key[0] if key else ()] = self._next
        self._next += 1
        layout = tuple((name, _datatype(name, dtype), tuple(map(int, shape))) for name, dtype, shape in key)
        self._link.post((self._kind, number, layout))
        self.is_full = len(self._numbers) >= MAX_LAYOUTS
        return number


def _datatype(name: str, dtype: np.dtype[Any]) -> str:
    if dtype.hasobject:
        return BYTES.wire
    found = BY_NUMPY.get(dtype)
    if found is None:
        raise InternalError(f"tensor '{name}' has the dtype {dtype}, which is no datatype of the protocol")
    return found.wire


def received(layout: Layout) -> tuple[TensorLayout, ...]:
    """A layout that has arrived."""
    return tuple(TensorLayout(name, BY_WIRE[wire], BY_WIRE[wire].numpy, tuple(shape)) for name, wire, shape in layout)


def row_bytes(tensors: Sequence[TensorLayout]) -> int:
    """The bytes of tensors of one row; 0 if there is another number of rows, or if there are strings."""
    size = 0
    for _, dtype, _, shape in tensors:
        if not dtype.itemsize or not shape or shape[0] != 1:
            return 0
        size += dtype.itemsize * math.prod(shape)
    return size


def opened(link: Link, tensors: Sequence[TensorLayout], places: Sequence[Place]) -> dict[str, Array]:
    """The arrays at these places: views of what has arrived, or of shared memory."""
    if len(tensors) == 1:
        name, dtype, numpy, shape = tensors[0]
        place = places[0]
        if type(place) is bytes and dtype.itemsize:
            return {name: _ndarray(shape, numpy, place)}
    found: dict[str, Array] = {}
    for (name, dtype, numpy, shape), place in zip(tensors, places, strict=True):
        data = place if type(place) is bytes else link.open(place)
        found[name] = _strings(name, data, shape) if dtype.itemsize == 0 else _ndarray(shape, numpy, data)
    return found


def _strings(name: str, data: bytes | memoryview, shape: tuple[int, ...]) -> Array:
    elements = math.prod(shape)
    place = f"tensor '{name}'"
    if stays_packed(len(data), elements):
        return as_strings(PackedStrings(data, shape, place))
    return decode_bytes(data, elements, place).reshape(shape)
