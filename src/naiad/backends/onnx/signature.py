"""The tensors that an ONNX graph declares."""

from __future__ import annotations

from typing import Any

from naiad.backends.shared.completion import GraphSignature
from naiad.backends.shared.signature import ModelTensor
from naiad.tensor.dtypes import BY_WIRE

_DTYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(bfloat16)": "BF16",
    "tensor(string)": "BYTES",
}


def read_signature(session: Any) -> GraphSignature:
    """The signature of an ``InferenceSession``; axes that are symbolic or unknown are -1."""
    inputs = [_tensor(node, not node.type.startswith("optional(")) for node in session.get_inputs()]
    # Inputs with a default value, which the framework lists apart.
    defaults = [_tensor(node, False) for node in session.get_overridable_initializers()]
    return GraphSignature((*inputs, *defaults), tuple(_tensor(node, True) for node in session.get_outputs()))


def _tensor(node: Any, required: bool) -> ModelTensor:
    wire = _DTYPES.get(
        node.type.removeprefix("optional(").removesuffix(")" if node.type.startswith("optional(") else "")
    )
    shape = tuple(axis if isinstance(axis, int) else -1 for axis in node.shape)
    return ModelTensor(node.name, BY_WIRE[wire] if wire else None, node.type, shape or None, required)
