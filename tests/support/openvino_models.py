"""Small OpenVINO models, built with the framework's own operators and saved as IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from naiad.backends import registry

# As the server does: the framework's converters, which send usage data, are not imported.
registry.import_framework(registry.BACKENDS["openvino"])

import openvino  # noqa: E402
from openvino import opset13  # noqa: E402

TYPES = {
    "BOOL": "boolean",
    "UINT8": "u8",
    "UINT16": "u16",
    "UINT32": "u32",
    "UINT64": "u64",
    "INT8": "i8",
    "INT16": "i16",
    "INT32": "i32",
    "INT64": "i64",
    "FP16": "f16",
    "FP32": "f32",
    "FP64": "f64",
    "BF16": "bf16",
    "BYTES": "string",
}
Shape = Sequence[int | tuple[int, int]]
"""Axes; -1 for a variable one, a pair for one with a range."""


def parameter(name: str, wire: str, shape: Shape) -> Any:
    """An input."""
    axes = [openvino.Dimension(*axis) if isinstance(axis, tuple) else openvino.Dimension(axis) for axis in shape]
    made = opset13.parameter(openvino.PartialShape(axes), getattr(openvino.Type, TYPES[wire]), name=name)
    return named(made, name)


def named(node: Any, name: str) -> Any:
    """The node, whose tensor has this name."""
    node.output(0).get_tensor().set_names({name})
    return node


def model(inputs: Sequence[Any], outputs: Mapping[str, Any]) -> Any:
    """A model with these inputs and outputs."""
    results = [opset13.result(named(node, name)) for name, node in outputs.items()]
    return openvino.Model(results, list(inputs), "model")


def save(path: Path, made: Any) -> Path:
    """Write a model as it is, weights in full precision; the path of the .xml file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    openvino.save_model(made, path, compress_to_fp16=False)
    return path


def echo(pairs: Mapping[str, str], wires: Sequence[str], shape: Shape) -> Any:
    """Outputs that equal inputs, by the name of the input.

    There is no operator between them: the framework computes with 64-bit integers in 32 bits, and crashes in its
    ``identity`` of strings. So each tensor has the names of both.
    """
    inputs = [parameter(name, wire, shape) for name, wire in zip(pairs, wires, strict=True)]
    for node, (given, output) in zip(inputs, pairs.items(), strict=True):
        node.output(0).get_tensor().set_names({given, output})
    return openvino.Model([opset13.result(node) for node in inputs], inputs, "model")


def double(shape: Shape, wire: str = "FP32") -> Any:
    """Y = X + X."""
    x = parameter("X", wire, shape)
    return model([x], {"Y": opset13.add(x, x)})


def linear(shape: Shape = (-1, 4), weight: float = 1.0) -> Any:
    """Y = X W, where every element of W, [4, 3], is ``weight``."""
    x = parameter("X", "FP32", shape)
    return model([x], {"Y": opset13.matmul(x, np.full((4, 3), weight, np.float32), False, False)})


def flat(rows: int) -> Any:
    """Y = X [rows, 4] with its shape written down, so that it cannot be reshaped."""
    x = parameter("X", "FP32", (rows, 4))
    return model([x], {"Y": opset13.reshape(opset13.add(x, x), np.array([rows, 4]), False)})


def run(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of OpenVINO, called directly."""
    compiled = openvino.Core().compile_model(str(path), "CPU")
    results = compiled(dict(inputs))
    return {port.any_name: results[port] for port in compiled.outputs}
