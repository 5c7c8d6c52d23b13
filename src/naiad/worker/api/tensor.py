"""``Tensor``: one named array of a request or a response."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..ipc.bytes_codec import decode_strings, encode_strings
from ..ipc.datatypes import BF16, BY_NUMPY, BYTES, WorkerDataType, of_numpy
from ..ipc.errors import TritonModelException, as_text
from ..ipc.types import Array, Buffer, Place
from . import dlpack


class Tensor:
    """A name, a datatype, a shape and the elements, which are shared with their owner and not copied.

    ``Tensor(name, numpy_array)`` takes a numpy array; BYTES are arrays of dtype object (elements ``bytes``; ``str`` is
    written as UTF-8) or of ``np.bytes_``. An array that is not in C order is copied.
    """

    # _array: what as_numpy() gives, None until it is asked for. _raw: where a received tensor lies, or the elements of
    # a BF16 tensor. _foreign: a tensor of another framework on another device.
    __slots__ = ("_array", "_foreign", "_name", "_raw", "_shape", "_type")

    _array: Array | None
    _raw: Place | None
    _foreign: Any

    def __init__(self, name: str, numpy_array: Any) -> None:
        if not isinstance(numpy_array, np.ndarray):
            numpy_array = _as_array(numpy_array)
        if not name or not isinstance(name, str):
            name = _checked_name(name)
        self._type = BY_NUMPY.get(numpy_array.dtype) or of_numpy(numpy_array.dtype)
        if not numpy_array.flags.c_contiguous:
            numpy_array = np.ascontiguousarray(numpy_array)
        self._name = name
        self._shape: tuple[int, ...] = numpy_array.shape
        self._array = numpy_array
        self._raw = self._foreign = None

    def name(self) -> str:
        """The name."""
        return self._name

    def shape(self) -> list[int]:
        """The size of every dimension, the batch dimension included."""
        return list(self._shape)

    def triton_dtype(self) -> int:
        """The number of the datatype, as ``triton_to_numpy_type`` takes it."""
        return self._type.number

    def is_cpu(self) -> bool:
        """Whether the elements lie in the processor's memory."""
        return self._foreign is None

    def as_numpy(self) -> Array:
        """The elements, shared and not copied. Those of a request are valid while the request is.

        Raises:
            TritonModelException: numpy has no such datatype (BF16), or the elements lie on another device.
        """
        array = self._array
        return array if array is not None else self._open()

    def to_dlpack(self) -> Any:
        """A DLPack capsule that shares the elements.

        Raises:
            TritonModelException: the datatype is BYTES.
        """
        if self._foreign is not None:
            return self._foreign if dlpack.is_capsule(self._foreign) else self._foreign.__dlpack__()
        return dlpack.export(self._elements(), self._type)

    def __dlpack__(self, stream: Any = None, **_: Any) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CPU, 0) if self._foreign is None else dlpack.device_of(self._foreign)

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """A tensor that shares the elements of a DLPack capsule, or of an object with ``__dlpack__``.

        Raises:
            TritonModelException: it is neither, its elements do not lie in C order, or its datatype has no counterpart.
        """
        if not name or not isinstance(name, str):
            name = _checked_name(name)
        if not dlpack.is_capsule(tensor) and not (
            hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__")
        ):
            raise TritonModelException(
                "Provided tensor is not supported. Tensor must be a DLPack capsule or have `__dlpack__` and "
                f"`__dlpack_device__` attributes, found type {type(tensor)}"
            )
        device = dlpack.device_of(tensor)[0]
        if device in (dlpack.CPU, dlpack.CUDA_HOST):
            return _of_array(name, *dlpack.take(tensor))
        if device != dlpack.CUDA:
            raise TritonModelException(f"DLDevice type {device} is not support by Python backend.")
        return _on_device(name, tensor)

    def __repr__(self) -> str:
        return f"Tensor({self._name!r}, {self._type.wire}, shape {self.shape()})"

    def _open(self) -> Array:
        if self._foreign is not None:
            raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
        if self._type is BF16:
            raise TritonModelException(
                "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            )
        array = self._array = self._elements()
        return array

    def _elements(self) -> Array:
        """The array of the stored type."""
        if self._array is not None:
            return self._array
        buffer, offset, size = self._located()
        if self._type is BYTES:
            return decode_strings(memoryview(buffer)[offset : offset + size], self._shape)
        return np.ndarray(self._shape, self._type.stored, buffer, offset)

    def _located(self) -> Place:
        if self._raw is None:
            raise TritonModelException(f"Tensor '{self._name}' is stored in GPU and cannot be read from there.")
        return self._raw

    def _payload(self) -> tuple[Buffer, int]:
        """The bytes to send, and their number."""
        array = self._array
        if array is not None:
            if self._type is not BYTES:
                return array, array.nbytes
            # A model may resize its array in place, and the server does not count the elements of large tensors.
            if array.size != math.prod(self._shape):
                raise TritonModelException(
                    f"Tensor '{self._name}' was made with shape {self.shape()}, and has {array.size} elements by now"
                )
            data = encode_strings(array)
            return data, len(data)
        if self._foreign is not None:
            moved, _ = dlpack.take(dlpack.to_processor(self._foreign))
            return moved, moved.nbytes
        buffer, offset, size = self._located()
        return memoryview(buffer)[offset : offset + size], size


def received(name: str, datatype: WorkerDataType, shape: tuple[int, ...], place: Place) -> Tensor:
    """A tensor whose bytes lie at ``place`` (buffer, offset, size); the buffer keeps them alive."""
    tensor = Tensor.__new__(Tensor)
    tensor._name = name
    tensor._type = datatype
    tensor._shape = shape
    tensor._raw = place
    tensor._array = tensor._foreign = None
    return tensor


def made_of(name: str, datatype: WorkerDataType, shape: tuple[int, ...], array: Array) -> Tensor:
    """A tensor of that array, which fits the datatype and the shape, and is one row-major block."""
    tensor = Tensor.__new__(Tensor)
    tensor._name = name
    tensor._type = datatype
    tensor._shape = shape
    tensor._array = array
    tensor._raw = tensor._foreign = None
    return tensor


def _of_array(name: str, array: Array, datatype: WorkerDataType) -> Tensor:
    if datatype is BF16:
        # As raw bytes and not as an array: ``as_numpy`` has to refuse it, since numpy has no BF16.
        flat = array.reshape(-1).view(np.uint8)
        return received(name, datatype, array.shape, (flat, 0, flat.nbytes))
    tensor = received(name, datatype, array.shape, (array, 0, array.nbytes))
    tensor._array = array
    return tensor


def _on_device(name: str, tensor: Any) -> Tensor:
    """A tensor in the memory of a device, which stays there until it is sent."""
    capsule = tensor if dlpack.is_capsule(tensor) else tensor.__dlpack__()
    datatype, shape = dlpack.described(capsule)
    made = received(name, datatype, shape, (b"", 0, 0))
    # Without a place: reading it as bytes is an error, sending it moves it to the processor.
    made._raw = None
    made._foreign = tensor
    return made


def _as_array(value: Any) -> Array:
    """What can become an array, such as a list. None could, too, and is always a mistake."""
    if value is None:
        raise TypeError("Tensor: the elements must be a numpy array, found None")
    return np.asarray(value)


def _checked_name(name: Any) -> str:
    if text := as_text(name, "Tensor: the name"):
        return text
    raise TritonModelException("Tensor name cannot be an empty string.")
