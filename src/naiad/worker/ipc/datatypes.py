"""The datatypes of tensors: names on the wire and in configurations, numbers, numpy types and DLPack types."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import TritonModelException

DLPACK_INT, DLPACK_UINT, DLPACK_FLOAT, DLPACK_BFLOAT, DLPACK_BOOL = 0, 1, 2, 4, 6


class WorkerDataType:
    """One datatype. There is one object for each, so that they compare by identity, which is quick.

    ``number`` is its place in the ``DataType`` enumeration of the model configuration. ``stored`` is the numpy type
    of its arrays: UINT16 for BF16, which numpy lacks. ``itemsize`` is 0 for BYTES. ``dlpack`` is DLPack's
    type code and number of bits.
    """

    __slots__ = ("dlpack", "itemsize", "number", "stored", "wire")

    def __init__(
        self, wire: str, number: int, stored: np.dtype[Any], itemsize: int, dlpack: tuple[int, int] | None
    ) -> None:
        self.wire = wire
        self.number = number
        self.stored = stored
        self.itemsize = itemsize
        self.dlpack = dlpack


def _numeric(wire: str, number: int, numpy_type: Any, code: int) -> WorkerDataType:
    dtype: np.dtype[Any] = np.dtype(numpy_type)
    return WorkerDataType(wire, number, dtype, dtype.itemsize, (code, dtype.itemsize * 8))


BYTES = WorkerDataType("BYTES", 13, np.dtype(np.object_), 0, None)
BF16 = _numeric("BF16", 14, np.uint16, DLPACK_BFLOAT)
BOOL = _numeric("BOOL", 1, np.bool_, DLPACK_BOOL)
_WITH_NUMPY_TYPE = (
    BOOL,
    _numeric("UINT8", 2, np.uint8, DLPACK_UINT),
    _numeric("UINT16", 3, np.uint16, DLPACK_UINT),
    _numeric("UINT32", 4, np.uint32, DLPACK_UINT),
    _numeric("UINT64", 5, np.uint64, DLPACK_UINT),
    _numeric("INT8", 6, np.int8, DLPACK_INT),
    _numeric("INT16", 7, np.int16, DLPACK_INT),
    _numeric("INT32", 8, np.int32, DLPACK_INT),
    _numeric("INT64", 9, np.int64, DLPACK_INT),
    _numeric("FP16", 10, np.float16, DLPACK_FLOAT),
    _numeric("FP32", 11, np.float32, DLPACK_FLOAT),
    _numeric("FP64", 12, np.float64, DLPACK_FLOAT),
    BYTES,
)
BY_WIRE: dict[str, WorkerDataType] = {t.wire: t for t in (*_WITH_NUMPY_TYPE, BF16)}
# Without BF16, whose stored type is that of UINT16.
BY_NUMPY: dict[Any, WorkerDataType] = {t.stored: t for t in _WITH_NUMPY_TYPE}
BY_DLPACK: dict[tuple[int, int], WorkerDataType] = {t.dlpack: t for t in BY_WIRE.values() if t.dlpack is not None}

# The reference's table: Python's own ``bool``, and no BF16.
TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    "TYPE_BOOL": bool,
    **{f"TYPE_{t.wire}": t.stored.type for t in _WITH_NUMPY_TYPE if t.wire not in ("BOOL", "BYTES")},
    "TYPE_STRING": np.object_,
}


def of_numpy(dtype: np.dtype[Any]) -> WorkerDataType:
    """The datatype of a numpy type.

    Raises:
        TritonModelException: there is none.
    """
    found = BY_NUMPY.get(dtype)
    if found is not None:
        return found
    # ``S4`` and its like: a dtype for each length, so they are in no table.
    if dtype.type is np.bytes_:
        return BYTES
    raise TritonModelException(
        f"NumPy dtype is not supported. Found '{dtype}', expected bool, an integer, a float of 16, 32 or 64 bits, or "
        "object (elements of type bytes)"
    )


def triton_to_numpy_type(data_type: int) -> Any:
    """The numpy type of a datatype's number, None for a number without one."""
    return next((t.stored.type for t in _WITH_NUMPY_TYPE if t.number == data_type), None)


def numpy_to_triton_type(data_type: Any) -> int | None:
    """The number of a numpy type, None when there is none."""
    # Compared and not looked up: a type and its dtype are equal, but their hashes differ.
    if data_type == np.bytes_:
        return BYTES.number
    return next((t.number for t in _WITH_NUMPY_TYPE if data_type == t.stored.type), None)


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """The numpy type of a configuration's datatype, such as ``TYPE_FP32``.

    Raises:
        KeyError: numpy has no such type (``TYPE_BF16``), or there is no such datatype.
    """
    return TRITON_STRING_TO_NUMPY[triton_type_string]
