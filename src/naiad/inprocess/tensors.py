"""Tensors of requests and responses in the program's own memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from naiad.errors import InvalidArgumentError
from naiad.request import Array
from naiad.tensor.dtypes import BY_NUMPY, DataType
from naiad.tensor.input_array import string_objects
from naiad.tensor.packed_bytes import unpacked


class LocalTensor:
    """An output of a response, or an input of a request; ``naiad.api.Tensor``.

    An output may share memory with the model's own array, and with an input of the request. ``numpy.asarray`` and
    ``numpy.from_dlpack`` give the array, without a copy.

    Attributes:
        data_type: such as ``DataType.FP32``; its text is the protocol's name.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    @classmethod
    def from_dlpack(cls, tensor: Any) -> Self:
        """The tensor of another library, such as numpy or PyTorch, in the same memory.

        Raises:
            InvalidArgumentError: it is no tensor in the memory of the program, or has no datatype of the protocol.
        """
        try:
            array = tensor if isinstance(tensor, np.ndarray) else np.from_dlpack(tensor)
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"found {type(tensor).__name__}, expected a tensor on the CPU: {error}"
            ) from None
        if array.dtype.kind in "OSU":
            return cls.from_bytes_array(array)
        if BY_NUMPY.get(array.dtype) is None:
            raise InvalidArgumentError(f"found an array of {array.dtype}, which is no datatype of the protocol")
        return cls(array)

    @classmethod
    def from_bytes_array(cls, elements: Any) -> Self:
        """A tensor of BYTES of ``str`` or ``bytes`` objects: a list, nested for more dimensions, or an array.

        Raises:
            InvalidArgumentError: an element is neither.
        """
        array = np.asarray(elements)
        if array.dtype.kind not in "OSU":
            raise InvalidArgumentError(f"found an array of {array.dtype}, expected elements of str or bytes")
        return cls(string_objects("tensor", array))

    @classmethod
    def from_string_array(cls, elements: Any) -> Self:
        """A tensor of BYTES, as of ``from_bytes_array``."""
        return cls.from_bytes_array(elements)

    @property
    def data_type(self) -> DataType:
        """The datatype."""
        return BY_NUMPY[self._array.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return tuple(self._array.shape)

    @property
    def size(self) -> int:
        """Bytes of the elements; of BYTES, of their references."""
        return int(self._array.nbytes)

    def to_host(self) -> Self:
        """The tensor itself: it is in the memory of the program."""
        return self

    def numpy(self) -> Array:
        """The array; BYTES as objects of ``bytes``."""
        return self._array

    def to_bytes_array(self) -> Array:
        """The elements of a tensor of BYTES as ``bytes``.

        Raises:
            InvalidArgumentError: it has another datatype.
        """
        if not self.data_type.is_bytes:
            raise InvalidArgumentError(f"found a tensor of {self.data_type.wire}, expected BYTES: use numpy()")
        return self._array

    def to_string_array(self) -> Array:
        """The elements of a tensor of BYTES as ``str``, read as UTF-8; errors as ``to_bytes_array``."""
        found = self.to_bytes_array()
        made = np.empty(found.shape, object)
        made.reshape(-1)[:] = [element.decode() for element in found.reshape(-1)]
        return made.astype(str) if found.size else made.astype("U1")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        # DLPack has no tensors that may only be read.
        array = self._array if self._array.flags.writeable else self._array.copy()
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return f"Tensor({self.data_type.wire}{list(self.shape)}, {self._array!r})"


def output_tensors(outputs: Mapping[str, Array]) -> dict[str, LocalTensor]:
    """The outputs of a model as tensors."""
    return {name: LocalTensor(unpacked(array)) for name, array in outputs.items()}
