"""Placeholders for tensors in regions: for an input until it is read, for an output once it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from naiad.shared_memory.region import RegionPart
from naiad.tensor.dtypes import DataType
from naiad.tensor.packed_bytes import serialised

Array = np.ndarray[Any, Any]


class RegionTensor:
    """An input of fixed-size elements that was not read yet. Takes the place of an array in a request.

    Attributes:
        part: its part of a region, of exactly ``nbytes`` bytes.
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
        """Read the tensor into a new array; errors as ``Region.read_into``."""
        # Read as bytes: bfloat16 is not a type that the buffer protocol knows.
        block = np.empty(self.nbytes, np.uint8)
        self.read_into(block.data)
        return block.view(self.dtype).reshape(self.shape)


class PlacedOutput:
    """An output that was written to its region. Takes the place of an array in a response.

    Attributes:
        dtype, shape: as of an array.
        nbytes: 0, because no bytes have to be sent.
    """

    __slots__ = ("dtype", "shape")
    nbytes = 0

    def __init__(self, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape


class RegionUse:
    """The regions of one request.

    Attributes:
        outputs: by name, the parts for outputs that are not sent in the response.
        held: refers to the regions of the inputs. A region that lost its name stays in the status while anything refers
            to it: until the response is sent, even when the inputs were read before.
        is_placed: the outputs were written.
    """

    __slots__ = ("held", "is_placed", "outputs")

    def __init__(self, outputs: Mapping[str, RegionPart], held: object = None) -> None:
        self.outputs = outputs
        self.held = held
        self.is_placed = not outputs

    def place(self, outputs: Mapping[str, Array]) -> None:
        """Write the outputs of a response to their regions.

        Raises:
            NaiadError: an output does not fit its part, or the region has become too small.
        """
        for name, part in self.outputs.items():
            # A worker may have written the output itself.
            if name in outputs and not isinstance(outputs[name], PlacedOutput):
                part.write(raw_bytes(outputs[name]), name)

    def size(self, outputs: Mapping[str, Array]) -> int:
        """How many bytes ``place`` has to write; elements of BYTES count as references."""
        return sum(outputs[name].nbytes for name in self.outputs if name in outputs)


def raw_bytes(array: Array) -> memoryview:
    """The bytes of a tensor in a region: each element of BYTES after its length."""
    if array.dtype == np.object_:
        return memoryview(serialised(array))
    if not array.size:
        return memoryview(b"")
    # Through uint8: bfloat16 is not a type that the buffer protocol knows.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def as_array(tensor: RegionTensor | PlacedOutput) -> Array:
    """A cast for the type checker, for mappings of arrays that may have placeholders."""
    return cast(Array, tensor)


def bytes_needed(dtype: DataType, elements: int) -> int:
    """The bytes of a tensor of fixed-size elements; -1 for BYTES, whose size is known only when they are read."""
    return -1 if dtype.is_bytes else elements * dtype.itemsize
