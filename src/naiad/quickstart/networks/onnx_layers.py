"""Layers of an ONNX graph; images have the order NCHW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from naiad.quickstart.networks.layers import Layer, Padding
from naiad.quickstart.networks.weights import REPEATS, Kernel, WeightSource
from naiad.quickstart.onnx_file import write_graph

_AUTO_PAD: Final = {"SAME": "SAME_UPPER", "VALID": "VALID"}
_TABLE: Final = "weights"


class OnnxLayers:
    """Adds layers to an ONNX graph, which ``write`` writes.

    Args:
        seed: of the random weights.
    """

    def __init__(self, seed: int) -> None:
        self._source = WeightSource(seed)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        repeats = self._constant("repeats", np.array([REPEATS], np.int64))
        self._add("Tile", [self._constant("table", self._source.table), repeats], _TABLE)

    # Layers

    def convolution(
        self, source: Layer, channels: int, kernel: tuple[int, int], stride: int = 1, padding: Padding = "SAME"
    ) -> Layer:
        """A convolution with a bias and a ReLU."""
        fan_in = source.channels * kernel[0] * kernel[1]
        weights = self._source.kernel((channels, source.channels, *kernel), fan_in)
        bias = self._constant(self._name("bias"), self._source.bias(channels))
        inputs = [source.name, self._kernel(weights), bias]
        strides = [stride, stride]
        found = self._add("Conv", inputs, kernel_shape=list(kernel), strides=strides, auto_pad=_AUTO_PAD[padding])
        return Layer(self._add("Relu", [found]), channels)

    def plain_convolution(self, source: Layer, channels: int, kernel: int, stride: int = 1) -> Layer:
        """A square convolution without a bias, and without a ReLU."""
        weights = self._source.kernel((channels, source.channels, kernel, kernel), source.channels * kernel**2, 1.0)
        size, strides = [kernel, kernel], [stride, stride]
        inputs = [source.name, self._kernel(weights)]
        found = self._add("Conv", inputs, kernel_shape=size, strides=strides, auto_pad=_AUTO_PAD["SAME"])
        return Layer(found, channels)

    def normalise(self, source: Layer, gain: float = 1.0) -> Layer:
        """A batch normalisation with ``gain``, which changes little else: its statistics are those of random layers."""
        ones = np.ones(source.channels, np.float32)
        parts = {"scale": gain * ones, "shift": self._source.bias(source.channels), "mean": 0 * ones, "variance": ones}
        names = [self._constant(self._name(part), values.astype(np.float32)) for part, values in parts.items()]
        return Layer(self._add("BatchNormalization", [source.name, *names]), source.channels)

    def rectify(self, source: Layer) -> Layer:
        """A ReLU."""
        return Layer(self._add("Relu", [source.name]), source.channels)

    def add(self, first: Layer, second: Layer) -> Layer:
        """The sum of two layers of one shape."""
        return Layer(self._add("Add", [first.name, second.name]), first.channels)

    def max_pool(self, source: Layer, size: int, stride: int, padding: Padding) -> Layer:
        """The largest of each ``size`` by ``size`` values."""
        return self._pool("MaxPool", source, size, stride, padding)

    def average_pool(self, source: Layer, size: int, stride: int, padding: Padding) -> Layer:
        """The mean of each ``size`` by ``size`` values."""
        return self._pool("AveragePool", source, size, stride, padding)

    def join(self, sources: Sequence[Layer]) -> Layer:
        """The channels of several layers behind each other."""
        names = [source.name for source in sources]
        return Layer(self._add("Concat", names, axis=1), sum(source.channels for source in sources))

    def classify(self, source: Layer, classes: int) -> Layer:
        """The mean of each channel, then a fully connected layer: [rows, classes]."""
        mean = self._add("Flatten", [self._add("GlobalAveragePool", [source.name])])
        weights = self._source.kernel((source.channels, classes), source.channels, 1.0)
        bias = self._constant(self._name("bias"), self._source.bias(classes))
        return Layer(self._add("Gemm", [mean, self._kernel(weights), bias]), classes)

    # Before and behind the layers

    def channels_first(self, image: str, channels: int) -> Layer:
        """The layer for an image that comes with its channels last."""
        return Layer(self._add("Transpose", [image], perm=[0, 3, 1, 2]), channels)

    def name_softmax(self, source: Layer, name: str) -> None:
        """Give the probabilities of [rows, classes] out as ``name``."""
        self._add("Softmax", [source.name], name, axis=1)

    def name_scores(self, source: Layer, name: str, shape: Sequence[int]) -> None:
        """Give a layer out as ``name``, in a shape whose 0 keeps the dimension as it is."""
        constant = self._constant(self._name("shape"), np.array(shape, np.int64))
        self._add("Reshape", [source.name, constant], name)

    def write(
        self,
        folder: Path,
        inputs: Mapping[str, Sequence[int | str]],
        outputs: Mapping[str, Sequence[int | str]],
    ) -> None:
        """Write ``model.onnx`` with FP32 inputs and outputs of these shapes into a version's folder."""
        given, made = ({name: ("FLOAT", shape) for name, shape in side.items()} for side in (inputs, outputs))
        write_graph(folder, self._nodes, given, made, self._constants)

    # Parts

    def _pool(self, operator: str, source: Layer, size: int, stride: int, padding: Padding) -> Layer:
        settings: dict[str, Any] = {
            "kernel_shape": [size, size],
            "strides": [stride, stride],
            "auto_pad": _AUTO_PAD[padding],
        }
        return Layer(self._add(operator, [source.name], **settings), source.channels)

    def _kernel(self, kernel: Kernel) -> str:
        """The tensor of a kernel, cut from the table."""
        begin, end = kernel.offset, kernel.offset + kernel.size
        ends = [self._constant(self._name("offset"), np.array([place], np.int64)) for place in (begin, end)]
        shape = self._constant(self._name("shape"), np.array(kernel.shape, np.int64))
        scale = self._constant(self._name("scale"), np.array(kernel.scale, np.float32))
        shaped = self._add("Reshape", [self._add("Slice", [_TABLE, *ends]), shape])
        return self._add("Mul", [shaped, scale])

    def _add(self, operator: str, inputs: Sequence[str], output: str = "", **settings: Any) -> str:
        from onnx import helper

        output = output or self._name(operator.lower())
        self._nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **settings))
        return output

    def _constant(self, name: str, values: np.ndarray[Any, Any]) -> str:
        from onnx import numpy_helper

        self._constants.append(numpy_helper.from_array(values, name))
        return name

    def _name(self, what: str) -> str:
        return f"{what}_{len(self._nodes)}_{len(self._constants)}"
