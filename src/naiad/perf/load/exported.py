"""What requests hold, as a profile export shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from naiad.perf.steps import StepStream, TensorValue
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE


def exported_inputs(streams: Sequence[StepStream]) -> list[dict[str, object]]:
    """The inputs of each step by name, as flat arrays; tensors in shared memory are left out."""
    return [
        {value.name: _array(value) for value in step.inputs if value.data}
        for stream in streams
        for step in stream.steps
    ]


def _array(value: TensorValue) -> np.ndarray[Any, Any]:
    datatype = BY_WIRE[value.datatype]
    if datatype.is_bytes:
        return decode_bytes(value.data, math.prod(value.shape), value.name)
    return np.frombuffer(value.data, datatype.numpy)
