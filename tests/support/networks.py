"""The networks of the demo with random weights: answers then depend on the input and on every weight.

The graphs ship with one constant in place of their weights, so their own answers tell little about order or mix-ups.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parents[2]


def load_script(name: str) -> ModuleType:
    """A module of ``scripts/`` by its name."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


demo_models = load_script("demo_models")


def with_random_weights(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy with random weights; the last layer is scaled so that scores before a softmax spread by a few units."""
    copy = demo_models.without_weight_inputs(model)
    _replace_constants(copy.graph, np.random.default_rng(seed))
    _scale_last_layer(copy, spread=2.0)
    return copy


def images(count: int, seed: int) -> np.ndarray:
    """``count`` unlike images of shape [3, 224, 224]: random blocks of 32 by 32 pixels around zero."""
    blocks = np.random.default_rng(seed).normal(size=(count, 3, 7, 7))
    return blocks.repeat(32, axis=2).repeat(32, axis=3).astype(np.float32)


def session(model: onnx.ModelProto | Path, threads: int = 1) -> onnxruntime.InferenceSession:
    """The network in onnxruntime, called directly."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _replace_constants(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    shapes = {i.name: i for i in graph.initializer}
    roles = _roles(graph)
    for node in [n for n in graph.node if n.op_type == "ConstantOfShape"]:
        shape = tuple(int(d) for d in numpy_helper.to_array(shapes[node.input[0]]))
        weight = _random_weight(random, shape, roles.get(node.output[0], "scale"))
        graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
        graph.initializer.remove(shapes[node.input[0]])
        graph.node.remove(node)


def _roles(graph: onnx.GraphProto) -> dict[str, str]:
    """Which weights are added (biases and means); the others are multiplied."""
    added = {"BatchNormalization": (2, 3), "Conv": (2,), "Gemm": (2,)}
    return {node.input[i]: "bias" for node in graph.node for i in added.get(node.op_type, ()) if i < len(node.input)}


def _random_weight(random: np.random.Generator, shape: tuple[int, ...], role: str) -> np.ndarray:
    if len(shape) > 1:
        return random.normal(0.0, np.sqrt(2.0 / np.prod(shape[1:])), shape).astype(np.float32)
    weight = random.normal(0.0, 0.05, shape) if role == "bias" else random.uniform(0.8, 1.2, shape)
    return weight.astype(np.float32)


def _scale_last_layer(model: onnx.ModelProto, spread: float) -> None:
    layer = next(n for n in reversed(model.graph.node) if n.op_type in ("Conv", "Gemm"))
    made_by = {node.output[0]: node for node in model.graph.node}
    weights = {i.name: i for i in model.graph.initializer}
    name = layer.input[1] if layer.input[1] in weights else made_by[layer.input[1]].input[0]
    factor = spread / _scores(model, layer.output[0]).std()
    weights[name].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights[name]) * np.float32(factor), name))


def _scores(model: onnx.ModelProto, tensor: str) -> np.ndarray:
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.append(onnx.ValueInfoProto(name=tensor))
    network = session(probe)
    return network.run([tensor], {network.get_inputs()[0].name: images(1, seed=0)})[0]
