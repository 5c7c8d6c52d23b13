"""Tensor datatypes of the server: the datatypes of workers with their names in configurations (``TYPE_FP32``).

Source: protocol section "Tensor Data Types" and the ``DataType`` enumeration of the model configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from naiad.worker.ipc import datatypes as worker
from naiad.worker.ipc.datatypes import WorkerDataType


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


def _data_type(shared: WorkerDataType) -> DataType:
    if shared is worker.BYTES:
        return DataType(shared.wire, "TYPE_STRING", shared.stored, shared.itemsize)
    # A worker has numpy alone, where BF16 is stored as UINT16. Here it is a type of its own.
    found = np.dtype(ml_dtypes.bfloat16) if shared is worker.BF16 else shared.stored
    return DataType(shared.wire, "TYPE_" + shared.wire, found, shared.itemsize)


DATATYPES = tuple(map(_data_type, worker.BY_WIRE.values()))
BY_WIRE: dict[str, DataType] = {t.wire: t for t in DATATYPES}
BY_CONFIG: dict[str, DataType] = {t.config: t for t in DATATYPES}
BY_NUMPY: dict[np.dtype[np.generic], DataType] = {t.numpy: t for t in DATATYPES}

BYTES = BY_WIRE["BYTES"]
