"""Tensor datatypes: wire name (``FP32``), configuration name (``TYPE_FP32``) and numpy dtype, in one table.

Source: protocol section "Tensor Data Types" and the ``DataType`` enumeration of the model configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class DataType:
    """One tensor datatype. ``itemsize`` is in bytes and 0 for BYTES, whose elements vary in size."""

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


def _table() -> tuple[DataType, ...]:
    numeric = {
        "BOOL": np.bool_,
        "UINT8": np.uint8,
        "UINT16": np.uint16,
        "UINT32": np.uint32,
        "UINT64": np.uint64,
        "INT8": np.int8,
        "INT16": np.int16,
        "INT32": np.int32,
        "INT64": np.int64,
        "FP16": np.float16,
        "FP32": np.float32,
        "FP64": np.float64,
        "BF16": ml_dtypes.bfloat16,
    }
    rows = [DataType(w, "TYPE_" + w, np.dtype(t), np.dtype(t).itemsize) for w, t in numeric.items()]
    return (*rows, DataType("BYTES", "TYPE_STRING", np.dtype(np.object_), 0))


DATATYPES = _table()
BY_WIRE: dict[str, DataType] = {t.wire: t for t in DATATYPES}
BY_CONFIG: dict[str, DataType] = {t.config: t for t in DATATYPES}
BY_NUMPY: dict[np.dtype[np.generic], DataType] = {t.numpy: t for t in DATATYPES}

BYTES = BY_WIRE["BYTES"]
