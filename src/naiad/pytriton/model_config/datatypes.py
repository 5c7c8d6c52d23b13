"""Datatypes of configurations and of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from naiad.pytriton.exceptions import PyTritonBadParameterError, PyTritonModelConfigError
from naiad.tensor.dtypes import BY_WIRE, DataType

BYTES_TYPES = (np.object_, object, bytes, np.bytes_)
_BY_NUMPY: dict[Any, DataType] = {np.dtype(d.numpy).type: d for d in BY_WIRE.values() if not d.is_bytes}
_PARTS = 2


def config_type(dtype: Any) -> str:
    """The name in a configuration, such as ``TYPE_FP32``, of a numpy type.

    Raises:
        PyTritonBadParameterError: no datatype of the protocol is like it.
    """
    if any(dtype is known for known in BYTES_TYPES):
        return "TYPE_STRING"
    try:
        return f"TYPE_{_BY_NUMPY[np.dtype(dtype).type].wire}"
    except (KeyError, TypeError):
        raise PyTritonBadParameterError(
            f"found the datatype {dtype!r}, expected one of numpy's numbers, np.bool_, np.bytes_ or object"
        ) from None


def numpy_type(data_type: str | None, subject: str) -> Any:
    """The numpy type of a name in a configuration; ``np.bytes_`` for strings.

    Args:
        subject: what has this datatype, for the error.

    Raises:
        PyTritonModelConfigError: it is no datatype.
    """
    if not data_type:
        raise PyTritonModelConfigError(f"Data type for {subject} not defined.")
    parts = data_type.split("_")
    if len(parts) != _PARTS:
        raise PyTritonModelConfigError(
            f"Invalid data type `{data_type}` for {subject} not defined. The expected name is TYPE_{{type}}."
        )
    if parts[1] == "STRING":
        return np.bytes_
    found = BY_WIRE.get(parts[1])
    if found is None or found.is_bytes:
        raise PyTritonModelConfigError(f"Unsupported data type `{data_type}` for {subject}")
    return np.dtype("bool") if found.wire == "BOOL" else np.dtype(found.numpy).type
