"""What requests hold, as a profile export shows it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from naiad.errors import NaiadError
from naiad.perf.steps import Step, StepStream, TensorValue
from naiad.perf.target.protocol import PerfTarget
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE


def exported_inputs(streams: Sequence[StepStream]) -> list[dict[str, object]]:
    """The inputs of each step by name, as flat arrays; tensors in shared memory are left out."""
    return [_inputs(step) for stream in streams for step in stream.steps]


def _inputs(step: Step) -> dict[str, object]:
    if step.payload:
        return {"payload": step.payload}
    return {value.name: _array(value) for value in step.inputs if value.data}


def exported_outputs(target: PerfTarget, response: Hashable) -> dict[str, object]:
    """The outputs of a response by name, as flat arrays; tensors in shared memory are left out.

    Args:
        response: as ``EncodedRequest.last_response``.
    """
    try:
        return {name: _array(value) for name, value in target.outputs_of(response).items() if value.data}
    except (ValueError, LookupError, TypeError, NaiadError):
        # A response that was a success by its status, and holds something else than outputs.
        return {}


def _array(value: TensorValue) -> np.ndarray[Any, Any]:
    datatype = BY_WIRE[value.datatype]
    if datatype.is_bytes:
        return decode_bytes(value.data, math.prod(value.shape), value.name)
    return np.frombuffer(value.data, datatype.numpy)
