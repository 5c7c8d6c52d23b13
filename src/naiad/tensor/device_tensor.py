"""Tensors in the memory of a device, on their way from one step of an ensemble to the next."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


CUDA: Final = 2
"""DLPack's type of NVIDIA's GPUs."""


class Device(NamedTuple):
    """A device as DLPack names it: its type (1 for the processor, ``CUDA``), and its number among those."""

    kind: int
    number: int


class DeviceTransfers:
    """How many tensors between steps stayed on their device, and how many were copied from there. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._resident = self._copied = 0

    def count_resident(self) -> None:
        """Count a tensor that a model got where it was."""
        with self._lock:
            self._resident += 1

    def count_copied(self) -> None:
        """Count a tensor that was copied to the processor's memory."""
        with self._lock:
            self._copied += 1

    def counts(self) -> dict[str, int]:
        """The numbers so far: ``resident``, ``copied``."""
        with self._lock:
            return {"resident": self._resident, "copied": self._copied}


transfers: Final = DeviceTransfers()
"""Of this process."""


class DeviceTensor:
    """A tensor of a framework in the memory of a device. Takes the place of an array; to numpy it is one, by a copy.

    Its elements are complete, in C order, and nobody writes to them.

    Args:
        source: the framework's tensor, with ``__dlpack__`` and ``__dlpack_device__``.
        dtype, shape: as of the array.
        fetch: copies a ``source`` to the processor's memory.

    Attributes:
        device: where it is.
        dtype, shape, nbytes: as of an array.
    """

    __slots__ = ("_fetch", "_source", "device", "dtype", "nbytes", "shape")

    def __init__(
        self, source: Any, dtype: np.dtype[Any], shape: tuple[int, ...], fetch: Callable[[Any], Array]
    ) -> None:
        self._source = source
        self._fetch = fetch
        kind, number = source.__dlpack_device__()
        self.device = Device(int(kind), int(number))
        self.dtype = dtype
        self.shape = shape
        self.nbytes = dtype.itemsize * math.prod(shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __getitem__(self, rows: slice) -> DeviceTensor:
        """Some rows, without a copy; for a ``source`` that has them."""
        part = self._source[rows]
        return DeviceTensor(part, self.dtype, tuple(part.shape), self._fetch)

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._source.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a tensor on a device is an array only by a copy")
        transfers.count_copied()
        array = self._fetch(self._source)
        return array if dtype is None else array.astype(dtype, copy=False)


def on_host(tensors: Mapping[str, Any]) -> dict[str, Array]:
    """The tensors, those on devices copied to the processor's memory."""
    return {name: np.asarray(t) if t.__class__ is DeviceTensor else t for name, t in tensors.items()}
