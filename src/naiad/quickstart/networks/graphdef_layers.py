"""Layers of a TensorFlow graph (GraphDef); images have the order NHWC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from naiad.quickstart.networks.graphdef_messages import FLOAT, INT32, graph_class
from naiad.quickstart.networks.layers import Layer, Padding
from naiad.quickstart.networks.weights import REPEATS, Kernel, WeightSource

_DATATYPES: Final = {np.dtype(np.float32): FLOAT, np.dtype(np.int32): INT32}
_TABLE: Final = "weights"
# TensorFlow reads it: it refuses a graph that only a later release could have made.
_PRODUCER: Final = 26


class GraphDefLayers:
    """Adds layers to a graph of TensorFlow, which ``write`` writes. TensorFlow itself is not needed.

    Args:
        seed: of the random weights.
    """

    def __init__(self, seed: int) -> None:
        self._source = WeightSource(seed)
        self._graph = graph_class()()
        self._graph.versions.producer = _PRODUCER
        table = self._constant("table", self._source.table)
        repeats = self._constant("repeats", np.array([REPEATS], np.int32))
        self._add("Tile", [table, repeats], {"T": FLOAT, "Tmultiples": INT32}, output=_TABLE)

    # Layers

    def convolution(
        self, source: Layer, channels: int, kernel: tuple[int, int], stride: int = 1, padding: Padding = "SAME"
    ) -> Layer:
        """A convolution with a bias and a ReLU."""
        fan_in = source.channels * kernel[0] * kernel[1]
        weights = self._kernel(self._source.kernel((*kernel, source.channels, channels), fan_in))
        strides = [1, stride, stride, 1]
        found = self._add("Conv2D", [source.name, weights], strides=strides, padding=padding)
        return Layer(self._add("Relu", [self._biased(found, channels)]), channels)

    def max_pool(self, source: Layer, size: int, stride: int, padding: Padding) -> Layer:
        """The largest of each ``size`` by ``size`` values."""
        return self._pool("MaxPool", source, size, stride, padding)

    def average_pool(self, source: Layer, size: int, stride: int, padding: Padding) -> Layer:
        """The mean of each ``size`` by ``size`` values."""
        return self._pool("AvgPool", source, size, stride, padding)

    def join(self, sources: Sequence[Layer]) -> Layer:
        """The channels of several layers behind each other."""
        axis = self._constant(self._name("axis"), np.array(3, np.int32))
        names = [*(source.name for source in sources), axis]
        found = self._add("ConcatV2", names, {"T": FLOAT, "Tidx": INT32}, N=len(sources))
        return Layer(found, sum(source.channels for source in sources))

    def classify(self, source: Layer, classes: int) -> Layer:
        """The mean of each channel, then a fully connected layer: [rows, classes]."""
        axes = self._constant(self._name("axes"), np.array([1, 2], np.int32))
        mean = self._add("Mean", [source.name, axes], {"T": FLOAT, "Tidx": INT32})
        weights = self._kernel(self._source.kernel((source.channels, classes), source.channels, 1.0))
        return Layer(self._biased(self._add("MatMul", [mean, weights]), classes), classes)

    # Before and behind the layers

    def placeholder(self, name: str, shape: Sequence[int]) -> Layer:
        """The input ``name``, FP32 [rows, height, width, channels]; -1 is a free dimension."""
        self._add("Placeholder", [], {"dtype": FLOAT}, output=name)
        dims = self._graph.node[-1].attr.add(key="shape").value.shape.dim
        for size in shape:
            dims.add(size=size)
        return Layer(name, shape[-1])

    def name_softmax(self, source: Layer, name: str) -> None:
        """Give the probabilities of [rows, classes] out as ``name``."""
        self._add("Softmax", [source.name], output=name)

    def write(self, file: Path) -> None:
        """Write the graph in its binary form."""
        file.write_bytes(self._graph.SerializeToString())

    # Parts

    def _pool(self, operator: str, source: Layer, size: int, stride: int, padding: Padding) -> Layer:
        window, strides = [1, size, size, 1], [1, stride, stride, 1]
        found = self._add(operator, [source.name], ksize=window, strides=strides, padding=padding)
        return Layer(found, source.channels)

    def _biased(self, source: str, channels: int) -> str:
        return self._add("BiasAdd", [source, self._constant(self._name("bias"), self._source.bias(channels))])

    def _kernel(self, kernel: Kernel) -> str:
        """The tensor of a kernel, cut from the table."""
        begin, size = (
            self._constant(self._name("range"), np.array([place], np.int32)) for place in (kernel.offset, kernel.size)
        )
        shape = self._constant(self._name("shape"), np.array(kernel.shape, np.int32))
        scale = self._constant(self._name("scale"), np.array(kernel.scale, np.float32))
        cut = self._add("Slice", [_TABLE, begin, size], {"T": FLOAT, "Index": INT32})
        shaped = self._add("Reshape", [cut, shape], {"T": FLOAT, "Tshape": INT32})
        return self._add("Mul", [shaped, scale])

    def _constant(self, name: str, values: np.ndarray[Any, Any]) -> str:
        datatype = _DATATYPES[values.dtype]
        self._add("Const", [], {"dtype": datatype}, output=name)
        tensor = self._graph.node[-1].attr.add(key="value").value.tensor
        tensor.dtype, tensor.tensor_content = datatype, values.tobytes()
        for size in values.shape:
            tensor.tensor_shape.dim.add(size=size)
        return name

    def _add(
        self,
        operator: str,
        inputs: Sequence[str],
        types: Mapping[str, int] | None = None,
        output: str = "",
        **settings: int | str | Sequence[int],
    ) -> str:
        """Add a node; ``types`` are its attributes that are datatypes, by default ``T`` alone."""
        node = self._graph.node.add(name=output or self._name(operator.lower()), op=operator, input=inputs)
        for key, datatype in ({"T": FLOAT} if types is None else types).items():
            node.attr.add(key=key).value.type = datatype
        for key, setting in settings.items():
            value = node.attr.add(key=key).value
            if isinstance(setting, str):
                value.s = setting.encode()
            elif isinstance(setting, int):
                value.i = setting
            else:
                value.list.i.extend(setting)
        return str(node.name)

    def _name(self, what: str) -> str:
        return f"{what}_{len(self._graph.node)}"
