"""``densenet_onnx``: DenseNet-121 (Huang et al., 2016)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from naiad.quickstart.example_model import ONNX, ExampleModel
from naiad.quickstart.labels import class_labels
from naiad.quickstart.networks.layers import Layer
from naiad.quickstart.networks.onnx_layers import OnnxLayers

_CLASSES: Final = 1000
_INPUT: Final = "data_0"
_OUTPUT: Final = "fc6_1"
_LABELS: Final = "densenet_labels.txt"
_SEED: Final = 121
_BLOCKS: Final = (6, 12, 24, 16)
_GROWTH: Final = 32
_BOTTLENECK: Final = 4 * _GROWTH
_GAIN: Final = 2**0.5

_CONFIG: Final = f"""\
name: "densenet_onnx"
platform: "onnxruntime_onnx"
max_batch_size: 0
input [
  {{
    name: "{_INPUT}"
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ 3, 224, 224 ]
    reshape {{ shape: [ 1, 3, 224, 224 ] }}
  }}
]
output [
  {{
    name: "{_OUTPUT}"
    data_type: TYPE_FP32
    dims: [ {_CLASSES} ]
    reshape {{ shape: [ 1, {_CLASSES}, 1, 1 ] }}
    label_filename: "{_LABELS}"
  }}
]
"""


def _write(folder: Path) -> None:
    layers = OnnxLayers(_SEED)
    found = layers.convolution(Layer(_INPUT, 3), 2 * _GROWTH, (7, 7), 2)
    found = layers.max_pool(found, 3, 2, "SAME")
    for number, length in enumerate(_BLOCKS):
        if number:
            found = _transition(layers, found)
        for _ in range(length):
            found = layers.join([found, _grown(layers, found)])
    scores = layers.classify(_ready(layers, found), _CLASSES)
    shape = [1, _CLASSES, 1, 1]
    layers.name_scores(scores, _OUTPUT, shape)
    layers.write(folder, {_INPUT: [1, 3, 224, 224]}, {_OUTPUT: shape})


def _ready(layers: OnnxLayers, source: Layer) -> Layer:
    return layers.rectify(layers.normalise(source, _GAIN))


def _grown(layers: OnnxLayers, source: Layer) -> Layer:
    """The channels that a step of a block adds."""
    narrow = layers.plain_convolution(_ready(layers, source), _BOTTLENECK, 1)
    return layers.plain_convolution(_ready(layers, narrow), _GROWTH, 3)


def _transition(layers: OnnxLayers, source: Layer) -> Layer:
    """Half of the channels, and half of the height and the width."""
    halved = layers.plain_convolution(_ready(layers, source), source.channels // 2, 1)
    return layers.average_pool(halved, 2, 2, "VALID")


DENSENET_ONNX: Final = ExampleModel(
    "densenet_onnx",
    "classifies images of 224 x 224: the layers of DenseNet-121, random weights",
    _CONFIG,
    _write,
    ONNX,
    files={_LABELS: class_labels(_CLASSES)},
)
