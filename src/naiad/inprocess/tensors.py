"""Tensors of requests and responses in the program's own memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from naiad.errors import InvalidArgumentError
from naiad.request import Array
from naiad.tensor.dtypes import BY_NUMPY, BYTES, DataType
from naiad.tensor.packed_bytes import packed_if_large, unpacked

BYTES_DTYPE = np.dtype(object)


class LocalTensor:
    """An output of a response. It may share memory with the model's own array, and with an input of the request.

    ``numpy.asarray`` and ``numpy.from_dlpack`` give the array, without a copy.

    Attributes:
        data_type: such as ``DataType.FP32``; its text is the protocol's name.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

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


def input_array(name: str, value: Any, declared: DataType | None) -> tuple[Array, DataType]:
    """A value as an input: an array that models only read, and its datatype.

    Args:
        name: of the input, for the error.
        value: an array, something that becomes one (a list, a tensor with ``__dlpack__`` or ``__array__``), or strings.
        declared: the datatype that lists become; None where it is not known.

    Raises:
        InvalidArgumentError: it has a datatype that the protocol lacks.
    """
    if isinstance(value, np.ndarray):
        array = value
    elif isinstance(value, LocalTensor):
        array = value.numpy()
    else:
        array = _as_array(name, value, declared)
    datatype = BY_NUMPY.get(array.dtype)
    if datatype is None or datatype is BYTES:
        return _special(name, array)
    # A view: the caller's own array stays as it is.
    array = array.view() if array.flags.c_contiguous else np.ascontiguousarray(array)
    array.flags.writeable = False
    return array, datatype


def _as_array(name: str, value: Any, declared: DataType | None) -> Array:
    if declared is None or hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    try:
        return np.asarray(value, dtype=declared.numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"input '{name}': {error}; expected values of {declared.wire}") from None


def _special(name: str, array: Array) -> tuple[Array, DataType]:
    """Strings, and numbers in another byte order."""
    native = array.dtype.newbyteorder("=")
    if native in BY_NUMPY and native != BYTES_DTYPE:
        return input_array(name, array.astype(native), None)
    if array.dtype.kind not in "OSU":
        raise InvalidArgumentError(f"input '{name}' is an array of {array.dtype}, which is no datatype of the protocol")
    made = np.empty(array.shape, object)
    made.reshape(-1)[:] = [_bytes(name, element) for element in array.reshape(-1).tolist()]
    return packed_if_large(made, f"input '{name}'"), BYTES


def _bytes(name: str, element: Any) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    raise InvalidArgumentError(f"input '{name}': an element is {type(element).__name__}, expected str or bytes")
