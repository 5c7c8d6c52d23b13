"""Arrays for frameworks that take only contiguous, writable memory and do not write to it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

CHEAP_COPY_BYTES: Final = 1 << 16
"""Up to here a copy costs less than a view of read-only memory (measured: 2.3 against 3.8 us at 64 KiB)."""


class WritableView:
    """Read-only memory declared as writable; keeps the memory's owner alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, array: Array) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self.owner = array


def shareable(array: Array) -> Array:
    """An array with the values of ``array`` that is contiguous and says that it is writable.

    It shares the memory of a big array even when that is read-only, so it is only for a framework that does not write.
    """
    flags = array.flags
    if flags.c_contiguous:
        if flags.writeable:
            return array
        if array.nbytes > CHEAP_COPY_BYTES:
            return np.asarray(WritableView(array))
    return array.copy()
