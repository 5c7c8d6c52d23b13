"""Networks of the field's shapes with random weights of a fixed seed, small enough for one core, as ONNX files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..figures import CaseSkippedError
from ..infer import Array
from ..models import add_model, instances, tensor_field
from .experiment import Known

SEED = 13
INPUT = "image"
MAX_BATCH_SIZE = 8
CLASSES = 1000


class Feature(NamedTuple):
    """The output of a layer: its name and how many channels it has."""

    name: str
    channels: int


class Network:
    """A network that is being drawn: each method adds a layer and returns its output.

    Attributes:
        shape: of one image: channels, height, width.
        outputs: the names of the outputs, and the shape of each for one image.
    """

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.outputs: dict[str, tuple[int, ...]] = {}
        self._onnx = _import_onnx()
        self._random = np.random.default_rng(SEED)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    @property
    def image(self) -> Feature:
        """The input."""
        return Feature(INPUT, self.shape[0])

    def conv(self, source: Feature, channels: int, kernel: int = 1, stride: int = 1, last: str = "Relu") -> Feature:
        """A convolution that keeps the size but for its stride, and the activation ``last``."""
        fan_in = source.channels * kernel * kernel
        weights = self._random.standard_normal((channels, source.channels, kernel, kernel)) * np.sqrt(2 / fan_in)
        inputs = [source.name, self._constant(weights.astype(np.float32))]
        made = self._node("Conv", inputs, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)
        return Feature(self._node(last, [made]), channels)

    def pool(self, source: Feature, stride: int) -> Feature:
        """The greatest of 3 x 3."""
        made = self._node("MaxPool", [source.name], kernel_shape=[3, 3], strides=[stride] * 2, pads=[1] * 4)
        return Feature(made, source.channels)

    def join(self, *sources: Feature) -> Feature:
        """All channels of all sources."""
        return Feature(self._node("Concat", [s.name for s in sources], axis=1), sum(s.channels for s in sources))

    def enlarge(self, source: Feature) -> Feature:
        """Twice as high and as wide."""
        scales = self._constant(np.array([1, 1, 2, 2], np.float32))
        return Feature(self._node("Resize", [source.name, "", scales], mode="nearest"), source.channels)

    def classify(self, source: Feature, classes: int) -> Feature:
        """The mean of each channel, and a score for each class."""
        flat = self._node("Flatten", [self._node("GlobalAveragePool", [source.name])])
        weights = self._random.standard_normal((source.channels, classes)) / np.sqrt(source.channels)
        return Feature(self._node("MatMul", [flat, self._constant(weights.astype(np.float32))]), classes)

    def give(self, source: Feature, name: str, *shape: int) -> None:
        """Make a feature of this shape an output."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [source.name], [name]))
        self.outputs[name] = shape

    def save(self, path: Path) -> None:
        """Write it with a free number of images."""
        make, kind = self._onnx.helper, self._onnx.TensorProto.FLOAT
        graph = make.make_graph(
            self._nodes,
            "field",
            [make.make_tensor_value_info(INPUT, kind, ["rows", *self.shape])],
            [make.make_tensor_value_info(name, kind, ["rows", *shape]) for name, shape in self.outputs.items()],
            self._weights,
        )
        model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)])
        model.ir_version = 9
        self._onnx.save(model, path)

    def _node(self, kind: str, inputs: Sequence[str], **attributes: object) -> str:
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _constant(self, values: Array) -> str:
        name = f"weights_{len(self._weights)}"
        self._weights.append(self._onnx.numpy_helper.from_array(values, name))
        return name


def inception() -> Network:
    """A classifier in Inception's shape: ten modules of four branches each, 3 x 96 x 96 to 1,000 scores."""
    drawn = Network(3, 96, 96)
    at = drawn.pool(drawn.conv(drawn.image, 16, 7, 2), 2)
    for stage in (3, 5, 2):
        for _ in range(stage):
            at = _module(drawn, at)
        at = drawn.pool(at, 2)
    drawn.give(drawn.classify(at, CLASSES), "scores", CLASSES)
    return drawn


def _module(drawn: Network, source: Feature) -> Feature:
    return drawn.join(
        drawn.conv(source, 24),
        drawn.conv(drawn.conv(source, 24), 32, 3),
        drawn.conv(drawn.conv(source, 8), 16, 5),
        drawn.conv(drawn.pool(source, 1), 16),
    )


def east() -> Network:
    """A finder of text in EAST's shape: four sizes of features, joined from the smallest up; two maps come out."""
    drawn = Network(3, 128, 128)
    at = drawn.conv(drawn.image, 16, 7, 2)
    features = []
    for channels in (32, 48, 64, 96):
        at = drawn.conv(drawn.conv(at, channels, 3, 2), channels, 3)
        features.append(at)
    at = features.pop()
    for channels in (64, 48, 32):
        at = drawn.join(drawn.enlarge(at), features.pop())
        at = drawn.conv(drawn.conv(at, channels), channels, 3)
    drawn.give(drawn.conv(at, 1, last="Sigmoid"), "score", 1, 32, 32)
    drawn.give(drawn.conv(at, 5, last="Sigmoid"), "geometry", 5, 32, 32)
    return drawn


def add_network(
    repository: Path, name: str, network: Network, *fields: str, count: int = 1, max_batch_size: int = MAX_BATCH_SIZE
) -> Known:
    """A model with ``count`` instances of one thread each; returns what it answers to one image."""
    version = add_model(
        repository,
        name,
        'platform: "onnxruntime_onnx"',
        f"max_batch_size: {max_batch_size}",
        tensor_field("input", INPUT, "TYPE_FP32", network.shape),
        *(tensor_field("output", output, "TYPE_FP32", shape) for output, shape in network.outputs.items()),
        instances(count, threads=1),
        *fields,
    )
    network.save(version / "model.onnx")
    return _known(version / "model.onnx", network)


def _known(file: Path, network: Network) -> Known:
    import onnxruntime

    inputs: Mapping[str, Array] = {INPUT: np.random.default_rng(0).random((1, *network.shape), np.float32)}
    output = next(iter(network.outputs))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return Known(inputs, output, session.run([output], dict(inputs))[0])


def _import_onnx() -> Any:
    try:
        import onnx
        import onnxruntime  # noqa: F401  (what the server runs these networks with)
    except ImportError:
        raise CaseSkippedError("onnx is not installed (pip install onnx onnxruntime)") from None
    return onnx
