"""What stands for a tensor that lies in a region: as an input until it is read, as an output once it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from naiad.shared_memory.region import RegionPart
from naiad.tensor.dtypes import DataType
from naiad.tensor.packed_bytes import serialised

Array = np.ndarray[Any, Any]


class RegionTensor:
    """An input of fixed-size elements that nobody has read yet. Takes the place of an array in a request.

    Attributes:
        part: where it lies; exactly as many bytes as it has.
        dtype, shape, nbytes: as of an array.
    """

    __slots__ = ("dtype", "nbytes", "part", "shape")

    def __init__(self, part: RegionPart, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
        self.part = part
        self.dtype = dtype
        self.shape = shape
        self.nbytes = part.byte_size

    def read_into(self, target: memoryview) -> None:
        """Fill ``target``, which has ``nbytes``; errors as ``Region.read_into``."""
        self.part.region.read_into(target, self.part.offset)

    def read(self) -> Array:
        """The tensor as an array of its own; errors as ``Region.read_into``."""
        block = np.empty(self.nbytes, np.uint8)
        self.read_into(block.data)
        return block.view(self.dtype).reshape(self.shape)


class PlacedOutput:
    """An output that was written into its region already. Takes the place of an array in a response.

    Attributes:
        dtype, shape: as of an array.
        nbytes: 0, for there is nothing to be sent.
    """

    __slots__ = ("dtype", "shape")
    nbytes = 0

    def __init__(self, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape


class RegionUse:
    """What one request has to do with regions besides reading its inputs.

    Attributes:
        outputs: where the outputs are wanted that do not travel in the answer.
        held: refers to the regions of the inputs. A region that loses its name stays in the status as long as anything
            refers to it, and so until the request is answered, even if its inputs were read before.
        is_placed: the outputs are there.
    """

    __slots__ = ("held", "is_placed", "outputs")

    def __init__(self, outputs: Mapping[str, RegionPart], held: object = None) -> None:
        self.outputs = outputs
        self.held = held
        self.is_placed = not outputs

    def place(self, outputs: Mapping[str, Array]) -> None:
        """Write the outputs of a response to where they are wanted.

        Raises:
            NaiadError: one does not fit, or its region has no room for it.
        """
        for name, part in self.outputs.items():
            if name in outputs and not isinstance(outputs[name], PlacedOutput):
                part.write(raw_bytes(outputs[name]), name)

    def size(self, outputs: Mapping[str, Array]) -> int:
        """How many bytes ``place`` has to write; those of BYTES count as what their references take."""
        return sum(outputs[name].nbytes for name in self.outputs if name in outputs)


def raw_bytes(array: Array) -> memoryview:
    """The bytes of a tensor as they lie in a region: BYTES with the length of each element before it."""
    if array.dtype == np.object_:
        return memoryview(serialised(array))
    if not array.size:
        return memoryview(b"")
    # Through uint8: bfloat16 is not a type that the buffer protocol knows.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def as_array(tensor: RegionTensor | PlacedOutput) -> Array:
    """For the type checker: where arrays go by name, one of these may stand for one."""
    return cast(Array, tensor)


def bytes_needed(dtype: DataType, elements: int) -> int:
    """How many bytes a tensor of fixed-size elements has; -1 for BYTES, which tell only when they are read."""
    return -1 if dtype.is_bytes else elements * dtype.itemsize
