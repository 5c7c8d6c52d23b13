"""Runs whose large outputs are written where they are sent from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from naiad.backend_api.backend import Arrays
from naiad.backends.onnx.output_shapes import OutputShapes

Array = np.ndarray[Any, Any]
Allocate = Callable[[int], Array | None]
"""Returns memory of so many bytes; None where there is none."""

LARGE_BYTES: Final = 1 << 20
"""Of the outputs of a run together: for 600 KB a binding gains nothing that could be measured, for 10 MB a tenth."""


class BoundOutputs:
    """Runs a session on the processor with its outputs bound to memory, if the graph says how large they will be.

    Args:
        dtypes: of the outputs.

    Attributes:
        is_used: whether outputs are bound at all; off once a run had an output of another shape than the graph says, or
            elsewhere.
    """

    def __init__(self, session: Any, dtypes: Mapping[str, np.dtype[Any]]) -> None:
        self._session = session
        self._dtypes = dtypes
        self._shapes = OutputShapes(session)
        self.is_used = True

    def memory(self, inputs: Arrays, outputs: Sequence[str], allocate: Allocate) -> dict[str, Array] | None:
        """Arrays for the outputs of a run; None if they are not known to be large."""
        shapes = self._shapes.of(inputs, outputs) if self.is_used else None
        if shapes is None:
            return None
        dtypes = [self._dtypes[name] for name in outputs]
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True)]
        # An output without elements need not have an address.
        if sum(sizes) < LARGE_BYTES or 0 in sizes:
            return None
        found = zip(outputs, sizes, dtypes, shapes, strict=True)
        return {name: _allocated(allocate, size).view(dtype).reshape(shape) for name, size, dtype, shape in found}

    def run(self, inputs: Arrays, arrays: Mapping[str, Array], options: Any) -> None:
        """Run with these arrays as outputs.

        Raises:
            ValueError: an output is elsewhere, as one that is an input of the graph.
            Exception: what the framework raises, also for outputs of other shapes.
        """
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, np.asarray(array, order="C"))
        for name, array in arrays.items():
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding, options)
        for value, array in zip(binding.get_outputs(), arrays.values(), strict=True):
            if value.data_ptr() != array.ctypes.data:
                raise ValueError("an output was not written into the memory that was bound for it")


def _allocated(allocate: Allocate, size: int) -> Array:
    memory = allocate(size)
    return np.empty(size, np.uint8) if memory is None else memory
