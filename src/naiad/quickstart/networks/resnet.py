"""``resnet50_onnx``: ResNet-50 (He et al., 2015), which takes batches."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from naiad.quickstart.example_model import ONNX, ExampleModel
from naiad.quickstart.labels import class_labels
from naiad.quickstart.networks.layers import Layer
from naiad.quickstart.networks.onnx_layers import OnnxLayers

NAME: Final = "resnet50_onnx"
INPUT: Final = "input"
OUTPUT: Final = "output"
CLASSES: Final = 1000

_SEED: Final = 50
_LABELS: Final = "labels.txt"
# Stages: how many blocks, and the channels inside of them, of which a block gives out four times as many.
_STAGES: Final = ((3, 64), (4, 128), (6, 256), (3, 512))
_WIDENING: Final = 4
# The branch of a block counts less than what goes past it, so that sums stay small over many blocks.
_BRANCH_GAIN: Final = 0.5

_CONFIG: Final = f"""\
name: "{NAME}"
platform: "onnxruntime_onnx"
max_batch_size: 256
input [
  {{
    name: "{INPUT}"
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ 3, 224, 224 ]
  }}
]
output [
  {{
    name: "{OUTPUT}"
    data_type: TYPE_FP32
    dims: [ {CLASSES} ]
    label_filename: "{_LABELS}"
  }}
]
"""


def _write(folder: Path) -> None:
    layers = OnnxLayers(_SEED)
    found = layers.convolution(Layer(INPUT, 3), 64, (7, 7), 2)
    found = layers.max_pool(found, 3, 2, "SAME")
    for number, (length, channels) in enumerate(_STAGES):
        for place in range(length):
            found = _block(layers, found, channels, stride=2 if number and not place else 1)
    layers.name_scores(layers.classify(found, CLASSES), OUTPUT, [0, CLASSES])
    layers.write(folder, {INPUT: ["N", 3, 224, 224]}, {OUTPUT: ["N", CLASSES]})


def _block(layers: OnnxLayers, source: Layer, channels: int, stride: int) -> Layer:
    wide = channels * _WIDENING
    narrow = layers.convolution(source, channels, (1, 1))
    middle = layers.convolution(narrow, channels, (3, 3), stride)
    branch = layers.normalise(layers.plain_convolution(middle, wide, 1), _BRANCH_GAIN)
    if (source.channels, stride) == (wide, 1):
        past = source
    else:
        past = layers.normalise(layers.plain_convolution(source, wide, 1, stride))
    return layers.rectify(layers.add(branch, past))


RESNET50_ONNX: Final = ExampleModel(
    NAME,
    "classifies images of 224 x 224 in batches: the layers of ResNet-50, random weights",
    _CONFIG,
    _write,
    ONNX,
    files={_LABELS: class_labels(CLASSES)},
)
