"""Tensors of TensorFlow Serving's gRPC API."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from naiad.perf.steps import TensorValue
from naiad.perf.target.protocol import TargetError
from naiad.perf.target.services.predict_messages import DTYPES, serving_message
from naiad.perf.target.services.signature import DATATYPES
from naiad.tensor.bytes_codec import decode_bytes, encode_bytes
from naiad.tensor.dtypes import BY_WIRE

_NUMBERS: Final = {DATATYPES[name]: number for number, name in DTYPES.items()}
_FIELDS: Final = {
    **dict.fromkeys(("INT8", "INT16", "INT32", "UINT8", "UINT16"), "int_val"),
    "FP32": "float_val",
    "FP64": "double_val",
    "INT64": "int64_val",
    "BOOL": "bool_val",
    "UINT32": "uint32_val",
    "UINT64": "uint64_val",
}
"""Where the elements of a tensor stand that has no ``tensor_content``."""


def tensor_message(value: TensorValue) -> Any:
    """A tensor as a message.

    Raises:
        TargetError: the API has no such datatype.
    """
    if value.datatype not in _NUMBERS:
        raise TargetError(f"the input '{value.name}' is {value.datatype}, which TensorFlow Serving does not have")
    message = serving_message("Tensor")(dtype=_NUMBERS[value.datatype])
    for size in value.shape:
        message.tensor_shape.dim.add(size=size)
    if BY_WIRE[value.datatype].is_bytes:
        message.string_val.extend(decode_bytes(value.data, math.prod(value.shape), value.name).tolist())
    else:
        message.tensor_content = value.data
    return message


def read_tensor_message(name: str, message: Any) -> TensorValue:
    """A message as a tensor.

    Raises:
        ValueError, LookupError: it is none.
    """
    wire = DATATYPES[DTYPES[message.dtype]]
    shape = tuple(dim.size for dim in message.tensor_shape.dim)
    if message.tensor_content:
        return TensorValue(name, wire, shape, message.tensor_content)
    count = math.prod(shape)
    if BY_WIRE[wire].is_bytes:
        return TensorValue(name, wire, shape, encode_bytes(np.array(list(message.string_val), np.object_)))
    if wire in ("FP16", "BF16"):
        # The bits of each element, as a number.
        return TensorValue(name, wire, shape, _filled(np.array(message.half_val, np.uint16), count).tobytes())
    found = np.array(getattr(message, _FIELDS[wire]), BY_WIRE[wire].numpy)
    return TensorValue(name, wire, shape, _filled(found, count).tobytes())


def _filled(found: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """All elements: those that are missing at the end repeat the last one."""
    if 0 < len(found) < count:
        return np.concatenate([found, np.repeat(found[-1:], count - len(found))])
    if len(found) != count:
        raise ValueError(f"{len(found)} elements, expected {count}")
    return found
