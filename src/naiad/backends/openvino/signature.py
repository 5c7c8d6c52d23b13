"""The tensors that an OpenVINO model declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from naiad.backends.shared.completion import GraphSignature
from naiad.backends.shared.signature import ModelTensor
from naiad.tensor.dtypes import BY_WIRE

if TYPE_CHECKING:
    from collections.abc import Collection

# OpenVINO's names of element types. It has others (u1, i4, f8e4m3, ...) that the protocol cannot carry.
_DTYPES: Final = {
    "boolean": "BOOL",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "f16": "FP16",
    "f32": "FP32",
    "f64": "FP64",
    "bf16": "BF16",
    "string": "BYTES",
}


def read_signature(
    model: Any, rows: int = 0, inputs: Collection[str] = (), outputs: Collection[str] = ()
) -> GraphSignature:
    """The signature of an ``openvino.Model``; variable axes are -1, with or without a range.

    Args:
        rows: the size of a first axis that is a fixed batch, shown as variable; 0 for none.
        inputs: names of the configuration: an input that has several names is called by one of these.
        outputs: likewise.
    """
    return GraphSignature(
        tuple(_tensor(port, rows, inputs) for port in model.inputs),
        tuple(_tensor(port, rows, outputs) for port in model.outputs),
    )


def port_name(port: Any, configured: Collection[str] = ()) -> str:
    """The name of an input or output: one that the configuration uses, or else its first.

    A model that was saved without names of tensors has those of operators. TensorFlow's ``x:0`` may also be ``x``.
    """
    names: list[str] = [*sorted(port.get_names()), _operator_name(port)]
    usable = [*names, *(name.removesuffix(":0") for name in names)]
    return next((name for name in usable if name in configured), names[0])


def shape_text(port: Any) -> str:
    """The shape in OpenVINO's notation, with ranges: ``[..100,5]``."""
    return str(port.get_partial_shape())


def has_axes(port: Any) -> bool:
    """Whether the number of axes is known, and is not zero."""
    shape = port.get_partial_shape()
    return shape.rank.is_static and len(shape) > 0


def is_scalar(port: Any) -> bool:
    """Whether the tensor has no axes."""
    shape = port.get_partial_shape()
    return shape.rank.is_static and len(shape) == 0


def _operator_name(port: Any) -> str:
    node = port.get_node()
    if node.get_type_name() != "Result":
        return str(node.get_friendly_name())
    source = node.input_value(0)
    name = source.get_node().get_friendly_name()
    return f"{name}.{source.get_index()}" if source.get_node().get_output_size() > 1 else str(name)


def _tensor(port: Any, rows: int, configured: Collection[str]) -> ModelTensor:
    type_name = port.get_element_type().get_type_name()
    wire = _DTYPES.get(type_name)
    shape = None
    if has_axes(port):
        shape = tuple(axis.get_length() if axis.is_static else -1 for axis in port.get_partial_shape())
        if rows and shape[0] == rows:
            shape = (-1, *shape[1:])
    return ModelTensor(port_name(port, configured), BY_WIRE[wire] if wire else None, type_name, shape)
