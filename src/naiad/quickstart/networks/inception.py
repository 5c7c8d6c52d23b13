"""``inception_onnx`` and ``inception_graphdef``: Inception v3 in two formats."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from naiad.quickstart.example_model import ONNX, TENSORFLOW, ExampleModel
from naiad.quickstart.labels import class_labels
from naiad.quickstart.networks.graphdef_layers import GraphDefLayers
from naiad.quickstart.networks.inception_layers import CLASSES, IMAGE_SIZE, inception_v3
from naiad.quickstart.networks.onnx_layers import OnnxLayers

LABELS: Final = "inception_labels.txt"
GRAPHDEF_INPUT: Final = "input"
GRAPHDEF_OUTPUT: Final = "InceptionV3/Predictions/Softmax"
IMAGE_SHAPE: Final = (IMAGE_SIZE, IMAGE_SIZE, 3)

_ONNX_INPUT: Final = "input:0"
_ONNX_OUTPUT: Final = "InceptionV3/Predictions/Softmax:0"
_SEED: Final = 299
_DIMS: Final = ", ".join(map(str, IMAGE_SHAPE))

_ONNX_CONFIG: Final = f"""\
name: "inception_onnx"
platform: "onnxruntime_onnx"
max_batch_size: 0
input [
  {{
    name: "{_ONNX_INPUT}"
    data_type: TYPE_FP32
    format: FORMAT_NHWC
    dims: [ {_DIMS} ]
    reshape {{ shape: [ 1, {_DIMS} ] }}
  }}
]
output [
  {{
    name: "{_ONNX_OUTPUT}"
    data_type: TYPE_FP32
    dims: [ {CLASSES} ]
    reshape {{ shape: [ 1, {CLASSES} ] }}
    label_filename: "{LABELS}"
  }}
]
"""
_GRAPHDEF_CONFIG: Final = f"""\
name: "inception_graphdef"
platform: "tensorflow_graphdef"
max_batch_size: 128
input [
  {{
    name: "{GRAPHDEF_INPUT}"
    data_type: TYPE_FP32
    format: FORMAT_NHWC
    dims: [ {_DIMS} ]
  }}
]
output [
  {{
    name: "{GRAPHDEF_OUTPUT}"
    data_type: TYPE_FP32
    dims: [ {CLASSES} ]
    label_filename: "{LABELS}"
  }}
]
"""


def inception_labels() -> str:
    """The labels of the classes: the network has one for images without an object, as the first."""
    return class_labels(CLASSES, first="UNUSED BACKGROUND")


def _write_onnx(folder: Path) -> None:
    layers = OnnxLayers(_SEED)
    scores = inception_v3(layers, layers.channels_first(_ONNX_INPUT, IMAGE_SHAPE[-1]))
    layers.name_softmax(scores, _ONNX_OUTPUT)
    layers.write(folder, {_ONNX_INPUT: [1, *IMAGE_SHAPE]}, {_ONNX_OUTPUT: [1, CLASSES]})


def _write_graphdef(folder: Path) -> None:
    layers = GraphDefLayers(_SEED)
    scores = inception_v3(layers, layers.placeholder(GRAPHDEF_INPUT, [-1, *IMAGE_SHAPE]))
    layers.name_softmax(scores, GRAPHDEF_OUTPUT)
    layers.write(folder / "model.graphdef")


INCEPTION_ONNX: Final = ExampleModel(
    "inception_onnx",
    "classifies images of 299 x 299: the layers of Inception v3, random weights",
    _ONNX_CONFIG,
    _write_onnx,
    ONNX,
    files={LABELS: inception_labels()},
)
INCEPTION_GRAPHDEF: Final = ExampleModel(
    "inception_graphdef",
    "the same as a frozen graph of TensorFlow, in batches",
    _GRAPHDEF_CONFIG,
    _write_graphdef,
    (TENSORFLOW,),
    files={LABELS: inception_labels()},
)
