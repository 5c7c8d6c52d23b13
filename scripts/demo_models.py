"""The demo's model repository, built from the networks that ship inside the ``onnx`` package.

The package carries the graphs of well-known networks without their trained weights: every weight is one constant,
which keeps a file at some 100 KB, and the answer to a fixed input lies beside it. ``build`` writes each network as it
is, and a second copy whose batch dimension is free wherever the graph allows that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator

FloatArray = np.ndarray[Any, np.dtype[np.float32]]

MAX_BATCH_SIZE = 8
# Since IR 4 a weight is an input of the graph only if it is listed as one; before, all of them were.
WEIGHTS_ARE_NOT_INPUTS = 4

BATCH_CONFIG = f"""\
backend: "onnxruntime"
max_batch_size: {MAX_BATCH_SIZE}
dynamic_batching {{
  max_queue_delay_microseconds: 100
}}
"""


@dataclass(frozen=True, slots=True)
class Network:
    """A network of the ``onnx`` package; ``rtol`` and ``atol`` are the tolerances of that package's own test of it."""

    name: str
    rtol: float = 1e-3
    atol: float = 1e-7

    @property
    def path(self) -> Path:
        """The graph."""
        return _light_directory() / f"light_{self.name}.onnx"

    def load(self) -> onnx.ModelProto:
        """The graph as it ships."""
        return onnx.load(self.path)

    def expected(self) -> FloatArray:
        """What the network answers to ``example_input``, shape [1, 1000] or [1, 1000, 1, 1]."""
        tensor = onnx.TensorProto()
        tensor.ParseFromString((_light_directory() / f"light_{self.name}_output_0.pb").read_bytes())
        return np.asarray(numpy_helper.to_array(tensor), np.float32)


NETWORKS = (
    Network("densenet121", rtol=2e-3),
    Network("inception_v1"),
    Network("inception_v2"),
    Network("resnet50"),
    Network("shufflenet"),
    Network("squeezenet"),
)


@dataclass(frozen=True, slots=True)
class DemoModel:
    """One network in the model repository. ``batch_name`` is the model with a free batch dimension, "" without one."""

    network: Network
    name: str
    batch_name: str
    input: str
    output: str
    shape: tuple[int, ...]


def example_input(shape: tuple[int, ...]) -> FloatArray:
    """The input that the shipped answers belong to: a ramp from 0 to 1."""
    size = int(np.prod(shape))
    return (np.arange(size).reshape(shape) / size).astype(np.float32)


def build(repository: Path, networks: tuple[Network, ...] = NETWORKS) -> list[DemoModel]:
    """Write every network into ``repository``, as it is without a configuration and as a batching copy with one."""
    return [_build_network(repository, network) for network in networks]


def _build_network(repository: Path, network: Network) -> DemoModel:
    model = network.load()
    data = _data_input(model)
    _write(repository / network.name, model, config=None)
    batchable = with_free_batch(model)
    batch_name = f"{network.name}_batch" if batchable is not None else ""
    if batchable is not None:
        _write(repository / batch_name, batchable, config=BATCH_CONFIG)
    shape = tuple(d.dim_value for d in data.type.tensor_type.shape.dim)
    return DemoModel(network, network.name, batch_name, data.name, model.graph.output[0].name, shape)


def _write(directory: Path, model: onnx.ModelProto, config: str | None) -> None:
    (directory / "1").mkdir(parents=True, exist_ok=True)
    onnx.save(model, directory / "1" / "model.onnx")
    if config is not None:
        (directory / "config.pbtxt").write_text(config)


def with_free_batch(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy whose first dimension is free, or None when the graph does not carry a free first dimension through."""
    copy = without_weight_inputs(model)
    data = _data_input(copy)
    _free_reshapes(copy.graph, data.name)
    for tensor in (data, *copy.graph.output):
        for dim in tensor.type.tensor_type.shape.dim[:1]:
            dim.dim_param = "N"
    return copy if _batch_reaches_outputs(copy) else None


def without_weight_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose only input is the data, as newer graphs are written."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = max(copy.ir_version, WEIGHTS_ARE_NOT_INPUTS)
    data = _data_input(copy)
    del copy.graph.input[:]
    copy.graph.input.append(data)
    return copy


def _data_input(model: onnx.ModelProto) -> onnx.ValueInfoProto:
    weights = {i.name for i in model.graph.initializer}
    return next(i for i in model.graph.input if i.name not in weights)


def _free_reshapes(graph: onnx.GraphProto, data: str) -> None:
    """Let every Reshape of the data keep its first dimension: a target of [1, ...] becomes [0, ...], "as it was"."""
    targets = {node.input[1] for node in _data_nodes(graph, data) if node.op_type == "Reshape"}
    for initializer in graph.initializer:
        if initializer.name not in targets:
            continue
        target = numpy_helper.to_array(initializer).copy()
        if target[0] == 1:
            target[0] = 0
            initializer.CopyFrom(numpy_helper.from_array(target, initializer.name))


def _data_nodes(graph: onnx.GraphProto, data: str) -> Iterator[onnx.NodeProto]:
    """The nodes that depend on the input ``data``; a graph lists its nodes in the order of their dependencies."""
    known = {data}
    for node in graph.node:
        if known.intersection(node.input):
            known.update(node.output)
            yield node


def _batch_reaches_outputs(model: onnx.ModelProto) -> bool:
    inferred = onnx.shape_inference.infer_shapes(_without_output_shapes(model), strict_mode=True)
    return all(_first_dimension(output) == "N" for output in inferred.graph.output)


def _first_dimension(tensor: onnx.ValueInfoProto) -> str:
    dims = tensor.type.tensor_type.shape.dim
    return dims[0].dim_param if dims else ""


def _without_output_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for output in copy.graph.output:
        output.type.tensor_type.ClearField("shape")
    return copy


def _light_directory() -> Path:
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
