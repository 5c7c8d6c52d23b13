"""Small ONNX models, made in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str | None] | None
ONNX_TYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[str, Shape]],
    outputs: dict[str, tuple[str, Shape]],
    weights: dict[str, np.ndarray] | None = None,
) -> Path:
    """Write a graph of ``nodes`` with typed inputs and outputs; the path."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(n, ONNX_TYPES[t], s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, ONNX_TYPES[t], s) for n, (t, s) in outputs.items()],
        [numpy_helper.from_array(w, n) for n, w in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def echo(path: Path, wire: str = "FP32", shape: Shape = ("N", 3)) -> Path:
    """X = A and Y = B."""
    nodes = [helper.make_node("Identity", ["A"], ["X"]), helper.make_node("Identity", ["B"], ["Y"])]
    tensor = (wire, shape)
    return save(path, nodes, {"A": tensor, "B": tensor}, {"X": tensor, "Y": tensor})


def convolutions(path: Path, layers: int, channels: int) -> Path:
    """Y = X through ``layers`` convolutions with kernels of 36 * channels * channels bytes each."""
    names = ["X", *(f"H{n}" for n in range(1, layers)), "Y"]
    nodes = [helper.make_node("Conv", [a, f"W{n}"], [b], pads=[1, 1, 1, 1]) for n, (a, b) in enumerate(pairwise(names))]
    random = np.random.default_rng(3)
    weights = {f"W{n}": random.random((channels, channels, 3, 3), np.float32) for n in range(layers)}
    tensor = ("FP32", (1, channels, 4, 4))
    return save(path, nodes, {"X": tensor}, {"Y": tensor}, weights)


def double(path: Path, inner: Shape = ("N", 3), outer: Shape = ("N", 3)) -> Path:
    """Y = X + X."""
    return save(path, [helper.make_node("Add", ["X", "X"], ["Y"])], {"X": ("FP32", inner)}, {"Y": ("FP32", outer)})
