"""Tensors of strings: BYTES to OpenVINO and back.

OpenVINO exchanges them with Python as arrays of fixed-size texts, in which each element takes the memory of the longest
and loses zero bytes at its end. So they are exchanged in parts of a few elements.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = np.ndarray[Any, Any]

_MOST_AT_ONCE: Final = 16
"""Elements of a part."""


def string_tensor(array: Array) -> Any:
    """An ``openvino.Tensor`` with the elements of ``array``, which are ``bytes``, copied."""
    import openvino

    tensor = openvino.Tensor(openvino.Type.string, list(array.shape))
    for begin, end in _parts(array.shape):
        part = openvino.Tensor(tensor, begin, end)
        part.bytes_data = np.array(array[_place(begin, end)], np.bytes_)
    return tensor


def string_array(tensor: Any) -> Array:
    """The elements of ``tensor`` as ``bytes``."""
    import openvino

    made: Array = np.empty(tuple(tensor.shape), np.object_)
    for begin, end in _parts(made.shape):
        made[_place(begin, end)] = _read(openvino.Tensor(tensor, begin, end))
    return made


def _place(begin: list[int], end: list[int]) -> tuple[slice, ...]:
    return tuple(slice(*bounds) for bounds in zip(begin, end, strict=True))


def _parts(shape: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """The bounds of parts of few elements. Each lies in one piece of memory: OpenVINO reads no other right."""
    if 0 in shape:
        return
    if not shape:
        yield [], []
        return
    # The outermost axis along which a step is small enough.
    axis = next(i for i in range(len(shape)) if prod(shape[i + 1 :]) <= _MOST_AT_ONCE)
    step = _MOST_AT_ONCE // prod(shape[axis + 1 :])
    cuts = [*range(0, shape[axis], step), shape[axis]]
    rest = list(shape[axis + 1 :])
    for lead in np.ndindex(*shape[:axis]):
        for start, stop in pairwise(cuts):
            yield [*lead, start, *(0 for _ in rest)], [*(i + 1 for i in lead), stop, *rest]


def _read(tensor: Any) -> Array:
    values: Array = tensor.bytes_data
    if values.dtype.itemsize > 1:
        return values
    # Where all are empty, the fixed size is 1 and its memory is not set.
    return np.where(tensor.str_data == "", b"", values)
