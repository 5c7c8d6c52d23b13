"""Tensors in traces: the beginning of each is copied when the request ends, and formatted in a thread.

Source of the format: ``tracer.cc`` of the reference and its recorded files. Values are one text, separated by commas;
BYTES are quoted, and booleans are 1 and 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

import numpy as np

from naiad.request import Array
from naiad.shared_memory.tensor_ref import PlacedOutput, RegionTensor
from naiad.tensor.dtypes import BY_NUMPY, DataType

QUEUE_INPUT: Final = "TENSOR_QUEUE_INPUT"
BACKEND_OUTPUT: Final = "TENSOR_BACKEND_OUTPUT"
MAX_ELEMENTS: Final = 1024
"""The most elements of one tensor in a trace."""
MAX_BYTES: Final = 65_536
"""The most bytes of all tensors of a request in its trace."""
CUT: Final = "..."
"""The end of the text of a truncated tensor."""

Placeholder = RegionTensor | PlacedOutput


class TracedTensor:
    """The beginning of a tensor; for a tensor in shared memory of a client, its description without data.

    Attributes:
        activity: the stage of the request.
        dtype: its wire name, such as ``FP32``.
        nbytes: the bytes of the elements that it holds.
    """

    __slots__ = ("_elements", "_is_cut", "activity", "dtype", "name", "nbytes", "shape")

    def __init__(self, activity: str, name: str, array: Array | Placeholder, dtype: DataType, room: int) -> None:
        """``room``: how many bytes it may take."""
        # A Python model may return another type than the configured one.
        dtype = BY_NUMPY.get(array.dtype, dtype)
        self.activity = activity
        self.name = name
        self.dtype = dtype.wire
        self.shape = array.shape
        self._elements: Array | list[bytes] = []
        self.nbytes = 0
        if isinstance(array, (RegionTensor, PlacedOutput)):
            # The client may have overwritten its shared memory by now.
            self._is_cut = bool(math.prod(array.shape))
            return
        if dtype.is_bytes:
            self._elements, self.nbytes = _first_texts(array, room)
        else:
            count = min(MAX_ELEMENTS, room // max(1, array.itemsize))
            # Not through reshape, which copies the whole of an array that is not contiguous.
            self._elements = array.flat[:count]
            self.nbytes = self._elements.nbytes
        self._is_cut = len(self._elements) < array.size

    def described(self) -> dict[str, str]:
        """The ``tensor`` object of the trace."""
        texts = [_shown(element) for element in self._elements] + [CUT] * self._is_cut
        shape = ",".join(map(str, self.shape))
        return {"name": self.name, "data": ",".join(texts), "shape": shape, "dtype": self.dtype}


def traced_tensors(
    activity: str, arrays: Mapping[str, Array], dtypes: Iterable[tuple[str, DataType]], room: int
) -> list[TracedTensor]:
    """The ``arrays`` that have a type in ``dtypes``, in its order; together at most ``room`` bytes."""
    found: list[TracedTensor] = []
    for name, dtype in dtypes:
        if (array := arrays.get(name)) is not None:
            found.append(TracedTensor(activity, name, array, dtype, room))
            room -= found[-1].nbytes
    return found


def _first_texts(array: Array, room: int) -> tuple[list[bytes], int]:
    found: list[bytes] = []
    held = 0
    for element in islice(array.flat, MAX_ELEMENTS):
        text = element if isinstance(element, bytes) else str(element).encode("utf-8", "backslashreplace")
        held += len(text)
        if held > room:
            return found, held - len(text)
        found.append(text)
    return found, held


def _shown(element: Any) -> str:
    if isinstance(element, bytes):
        return f'"{element.decode("utf-8", "backslashreplace")}"'
    return str(int(element)) if isinstance(element, np.bool_) else str(element)
