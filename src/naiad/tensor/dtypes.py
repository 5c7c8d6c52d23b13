"""Tensor datatypes of the server: the datatypes of workers with their names in configurations (``TYPE_FP32``).

Source: protocol section "Tensor Data Types" and the ``DataType`` enumeration of the model configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar, overload

import numpy as np

from naiad.worker.ipc import datatypes as worker
from naiad.worker.ipc.datatypes import WorkerDataType

_Default = TypeVar("_Default")


@dataclass(frozen=True, slots=True)
class DataType:
    """One tensor datatype. ``itemsize`` is in bytes and 0 for BYTES, whose elements vary in size."""

    BOOL: ClassVar[DataType]
    UINT8: ClassVar[DataType]
    UINT16: ClassVar[DataType]
    UINT32: ClassVar[DataType]
    UINT64: ClassVar[DataType]
    INT8: ClassVar[DataType]
    INT16: ClassVar[DataType]
    INT32: ClassVar[DataType]
    INT64: ClassVar[DataType]
    FP16: ClassVar[DataType]
    BF16: ClassVar[DataType]
    FP32: ClassVar[DataType]
    FP64: ClassVar[DataType]
    BYTES: ClassVar[DataType]

    wire: str
    config: str
    numpy: np.dtype[np.generic]
    itemsize: int

    @property
    def is_bytes(self) -> bool:
        """True for BYTES, whose arrays hold Python ``bytes`` objects."""
        return self.itemsize == 0

    @property
    def in_json(self) -> bool:
        """False for the two half-size floats, which the protocol carries as binary data only."""
        return self.wire not in ("FP16", "BF16")

    def __reduce__(self) -> Any:
        # Datatypes are compared by identity: what another process of the server sends becomes the one of this process.
        return by_wire, (self.wire,)


class _BFloat16(DataType):
    """BF16, which numpy lacks. ``ml_dtypes`` has it, takes 2 MiB, and is imported for the first tensor of this type."""

    __slots__ = ()

    def __init__(self, shared: WorkerDataType) -> None:
        # The class is frozen. ``numpy`` stays empty: the property below stands in for it.
        for name, value in (("wire", shared.wire), ("config", f"TYPE_{shared.wire}"), ("itemsize", shared.itemsize)):
            object.__setattr__(self, name, value)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The dtype of arrays."""
        return _bfloat16()

    def __reduce__(self) -> str:
        return "BF16"


@cache
def _bfloat16() -> np.dtype[np.generic]:
    import ml_dtypes

    found: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
    return found


class _ByNumpy(dict[np.dtype[Any], DataType]):
    """Datatypes by the dtype of arrays. Finds BF16 without importing its package: whoever asks for it has done so."""

    def __missing__(self, dtype: np.dtype[Any]) -> DataType:
        if dtype.name != _BFLOAT16:
            raise KeyError(dtype)
        self[dtype] = BF16
        return BF16

    @overload
    def get(self, dtype: np.dtype[Any], default: None = None) -> DataType | None: ...

    @overload
    def get(self, dtype: np.dtype[Any], default: _Default) -> DataType | _Default: ...

    def get(self, dtype: np.dtype[Any], default: Any = None) -> Any:
        """The datatype, or ``default``."""
        try:
            return self[dtype]
        except KeyError:
            return default


def _data_type(shared: WorkerDataType) -> DataType:
    if shared is worker.BF16:
        return BF16
    config = "TYPE_STRING" if shared is worker.BYTES else f"TYPE_{shared.wire}"
    return DataType(shared.wire, config, shared.stored, shared.itemsize)


_BFLOAT16 = "bfloat16"
# A worker has numpy alone, where BF16 is stored as UINT16. Here it is a type of its own.
BF16: DataType = _BFloat16(worker.BF16)
DATATYPES = tuple(map(_data_type, worker.BY_WIRE.values()))
BY_WIRE: dict[str, DataType] = {t.wire: t for t in DATATYPES}
for _wire, _datatype in BY_WIRE.items():
    setattr(DataType, _wire, _datatype)


def by_wire(wire: str) -> DataType:
    """The datatype with a name of the protocol.

    Raises:
        KeyError: there is none.
    """
    return BY_WIRE[wire]


BY_CONFIG: dict[str, DataType] = {t.config: t for t in DATATYPES}
BY_NUMPY = _ByNumpy({t.numpy: t for t in DATATYPES if t is not BF16})

BYTES = BY_WIRE["BYTES"]
