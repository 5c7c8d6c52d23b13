"""The types of arrays and of memory, for annotations: numpy's cannot be written down in Python 3.8 itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Tuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
else:
    Array = Any

Buffer = Any
"""Something with the buffer protocol: bytes, a bytearray, a memoryview or an array."""
Place = Tuple[Buffer, int, int]
"""Where a tensor's bytes lie: a buffer, an offset and a size."""
Locate = Callable[[bytearray, Tuple[int, ...], int], Tuple[Place, ...]]
"""Finds the bytes of tensors: payload of the frame, unpacked places, and where the data part of the payload begins."""
