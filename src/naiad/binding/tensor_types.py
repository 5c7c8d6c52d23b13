"""Datatypes and shapes of tensors as programs write them: ``naiad.FP32[-1, 16]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from naiad.errors import InvalidArgumentError
from naiad.tensor.dtypes import BY_WIRE, DataType

VARIABLE: Final = -1
"""A dimension of any size."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """The datatype and the shape of a tensor.

    ``FP32[-1, 16]`` is a matrix with any number of rows and 16 columns; ``FP32`` alone is ``FP32[-1]``, a vector of any
    length.

    Attributes:
        datatype: the protocol's name, such as ``FP32``.
        dims: the size of each dimension, -1 for any size; without the batch dimension for a function with ``@batch``.
    """

    datatype: str
    dims: tuple[int, ...] = (VARIABLE,)

    def __getitem__(self, dims: int | tuple[int, ...]) -> TensorType:
        """The same datatype with other dimensions.

        Raises:
            InvalidArgumentError: there is no dimension, or one is neither a size nor -1.
        """
        given = dims if isinstance(dims, tuple) else (dims,)
        if not given or any(type(d) is not int or (d < 1 and d != VARIABLE) for d in given):
            raise InvalidArgumentError(
                f"found {self.datatype}{list(given)}, expected at least one dimension, each a size from 1 on or -1 for "
                f"any size: write for example {self.datatype}[-1, 16]"
            )
        return TensorType(self.datatype, given)

    @property
    def data_type(self) -> DataType:
        """The datatype as the server knows it."""
        return BY_WIRE[self.datatype]

    @property
    def any_size(self) -> TensorType:
        """The same datatype and number of dimensions, each of any size."""
        return TensorType(self.datatype, (VARIABLE,) * len(self.dims))

    def __str__(self) -> str:
        return f"{self.datatype}{list(self.dims)}"


BOOL: Final = TensorType("BOOL")
UINT8: Final = TensorType("UINT8")
UINT16: Final = TensorType("UINT16")
UINT32: Final = TensorType("UINT32")
UINT64: Final = TensorType("UINT64")
INT8: Final = TensorType("INT8")
INT16: Final = TensorType("INT16")
INT32: Final = TensorType("INT32")
INT64: Final = TensorType("INT64")
FP16: Final = TensorType("FP16")
BF16: Final = TensorType("BF16")
FP32: Final = TensorType("FP32")
FP64: Final = TensorType("FP64")
BYTES: Final = TensorType("BYTES")
