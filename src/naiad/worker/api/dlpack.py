"""Tensors from and to other frameworks without a copy, over DLPack.

numpy does the work. It knows neither BF16 nor (in older releases) BOOL, so those travel through it as unsigned integers
of the same size, and the type that the capsule names is corrected in place.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from ..ipc.datatypes import BOOL, BY_DLPACK, DLPACK_UINT, WorkerDataType
from ..ipc.errors import TritonModelException
from ..ipc.types import Array

CPU, CUDA, CUDA_HOST = 1, 2, 3
_NAME = b"dltensor"


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Description(ctypes.Structure):
    """The beginning of ``DLManagedTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


class _Carrier:
    """What numpy asks for: an object with ``__dlpack__``, around a capsule."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    # Releases of numpy differ in the arguments that they pass.
    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def export(array: Array, datatype: WorkerDataType) -> Any:
    """A capsule that shares the memory of an array which holds values of a datatype (BF16 as UINT16).

    Raises:
        TritonModelException: BYTES, or numpy is too old.
    """
    if datatype.dlpack is None:
        raise TritonModelException("DLPack does not have support for string tensors.")
    if not array.flags.writeable:
        # numpy has no way to say "read-only" in a capsule and refuses.
        array = array.copy()
    if datatype is BOOL:
        array = array.view(np.uint8)
    capsule = _numpy_function(array, "__dlpack__")()
    kind = _description(capsule).dtype
    kind.code, kind.bits = datatype.dlpack
    return capsule


def is_capsule(value: Any) -> bool:
    """Whether the value is a DLPack capsule that nobody has taken yet."""
    return bool(_capsule_is_valid(value, _NAME))


def device_of(source: Any) -> tuple[int, int]:
    """DLPack's type and number of the device that a tensor or capsule lies on."""
    if is_capsule(source):
        device = _description(source).device
        return device.type, device.id
    kind, number = source.__dlpack_device__()
    return int(kind), int(number)


def take(source: Any) -> tuple[Array, WorkerDataType]:
    """The array that shares the memory of a capsule, or of a tensor with ``__dlpack__``, in the processor's memory.

    Raises:
        TritonModelException: the datatype has no counterpart, the elements do not lie in C order, or numpy is too old.
    """
    capsule = source if is_capsule(source) else source.__dlpack__()
    description = _description(capsule)
    # Also for CUDA_HOST, which the processor reads like its own memory.
    description.device.type = CPU
    datatype = _datatype(description.dtype)
    if datatype.stored.kind in "bu":
        description.dtype.code = DLPACK_UINT
    array = _numpy_function(np, "from_dlpack")(_Carrier(capsule))
    if not array.flags.c_contiguous:
        raise TritonModelException(
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
        )
    return array.view(np.bool_) if datatype is BOOL else array, datatype


def described(capsule: Any) -> tuple[WorkerDataType, tuple[int, ...]]:
    """The datatype and the shape that a capsule names."""
    description = _description(capsule)
    return _datatype(description.dtype), tuple(description.shape[: description.ndim])


def to_processor(source: Any) -> Any:
    """A copy, in the processor's memory, of a tensor that lies on another device.

    Raises:
        TritonModelException: it is a bare capsule, and no framework is loaded that could copy it.
    """
    if is_capsule(source):
        torch = sys.modules.get("torch")
        if torch is None:
            raise TritonModelException(
                "A DLPack capsule of another device cannot be copied to the processor's memory: pass the framework's "
                "tensor itself to Tensor.from_dlpack, or move it to the CPU first"
            )
        source = torch.utils.dlpack.from_dlpack(source)
    # torch calls it ``cpu``, CuPy ``get``; a tensor of the server is an array to numpy.
    for name in ("cpu", "get"):
        if hasattr(source, name):
            moved = getattr(source, name)()
            return moved.contiguous() if hasattr(moved, "contiguous") else moved
    if hasattr(source, "__array__"):
        return np.asarray(source)
    raise TritonModelException(
        f"A tensor of type {type(source)} cannot be copied to the processor's memory: move it first"
    )


def _datatype(kind: Any) -> WorkerDataType:
    found = BY_DLPACK.get((kind.code, kind.bits)) if kind.lanes == 1 else None
    if found is None:
        raise TritonModelException(
            f"DLPack datatype (code {kind.code}, {kind.bits} bits, {kind.lanes} lanes) is not supported."
        )
    return found


def _numpy_function(owner: Any, name: str) -> Any:
    function = getattr(owner, name, None)
    if function is None:
        raise TritonModelException(f"DLPack needs numpy 1.23 or newer, found {np.__version__}")
    return function


def _description(capsule: Any) -> Any:
    return _Description.from_address(_capsule_pointer(capsule, _NAME))


_capsule_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_is_valid.restype = ctypes.c_int
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p
