"""The ensembles that take image files, and the Python models that make tensors of these."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from typing import Final

from naiad.quickstart.example_model import PILLOW, ExampleModel, tensor_field
from naiad.quickstart.image import sample_image
from naiad.quickstart.networks import inception, resnet
from naiad.quickstart.networks.inception_layers import CLASSES
from naiad.quickstart.python_models import write_program

MEASURED: Final = "input.json"

_PROGRAM: Final = '''\
"""Makes the tensor of an image file (JPEG, PNG or whatever else Pillow reads).

The configuration says which tensor: the dims of the output (channels first or last), and the parameter ``scaling``:
``IMAGENET`` for the mean and the deviation of its images, ``INCEPTION`` for values from -1 to 1.
"""

import io
import json

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image, UnidentifiedImageError

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


class TritonPythonModel:
    """The input has an image file in each row: bytes as UINT8, or one string."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.input = config["input"][0]["name"]
        self.output = config["output"][0]["name"]
        dims = [int(size) for size in config["output"][0]["dims"]]
        self.has_channels_first = dims[0] == 3
        height, width = dims[1:] if self.has_channels_first else dims[:2]
        self.size = (width, height)
        self.scaling = config["parameters"]["scaling"]["string_value"]

    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        rows = pb_utils.get_input_tensor_by_name(request, self.input).as_numpy()
        try:
            images = np.stack([self.tensor(row.item() if row.dtype == object else row.tobytes()) for row in rows])
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            text = f"the input '{self.input}' is no image that Pillow can read: {error}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor(self.output, images)])

    def tensor(self, file):
        try:
            image = Image.open(io.BytesIO(file))
        except UnidentifiedImageError:
            raise ValueError(f"its {len(file)} bytes are in no format that Pillow knows") from None
        image = image.convert("RGB").resize(self.size, Image.Resampling.BILINEAR)
        values = np.asarray(image, np.float32)
        if self.scaling == "INCEPTION":
            values = values / 127.5 - 1
        else:
            values = (values / 255 - MEAN) / DEVIATION
        return np.ascontiguousarray(values.transpose(2, 0, 1) if self.has_channels_first else values)
'''


def _preprocessing(name: str, summary: str, max_batch_size: int, given: str, made: str, scaling: str) -> ExampleModel:
    """A model that makes tensors of images; ``given`` and ``made`` are its tensors in text form."""
    config = (
        f'name: "{name}"\nbackend: "python"\nmax_batch_size: {max_batch_size}\n{given}{made}'
        f'parameters [\n  {{\n    key: "scaling"\n    value: {{ string_value: "{scaling}" }}\n  }}\n]\n'
        "instance_group [{ kind: KIND_CPU }]\n"
    )
    return ExampleModel(name, summary, config, lambda folder: write_program(folder, _PROGRAM), (PILLOW,))


def _step(model: str, **maps: tuple[str, str]) -> str:
    texts = "".join(
        f'      {side} {{\n        key: "{key}"\n        value: "{value}"\n      }}\n'
        for side, (key, value) in maps.items()
    )
    return f'    {{\n      model_name: "{model}"\n      model_version: -1\n{texts}    }}'


def _ensemble(name: str, max_batch_size: int, given: str, made: str, steps: Sequence[str]) -> str:
    listed = ",\n".join(steps)
    return (
        f'name: "{name}"\nplatform: "ensemble"\nmax_batch_size: {max_batch_size}\n{given}{made}'
        f"ensemble_scheduling {{\n  step [\n{listed}\n  ]\n}}\n"
    )


def _measured(tensor: bytes, *shape: int) -> str:
    """The file that ``naiad perf`` and perf_analyzer read with ``--input-data``: one step with the bytes of INPUT."""
    content = {"b64": base64.b64encode(tensor).decode()}
    return f"{json.dumps({'data': [{'INPUT': {'content': content, 'shape': shape}}]})}\n"


_IMAGE: Final = "preprocessed_image"
_FILE: Final = sample_image()

PREPROCESS: Final = _preprocessing(
    "preprocess",
    "makes the tensor for resnet50_onnx of an image file, in Python",
    256,
    tensor_field("input", "INPUT_0", "UINT8", [-1]),
    tensor_field("output", "OUTPUT_0", "FP32", [3, 224, 224]),
    "IMAGENET",
)
PREPROCESS_INCEPTION: Final = _preprocessing(
    "preprocess_inception",
    "makes the tensor for inception_graphdef of an image file, in Python",
    128,
    tensor_field("input", "INPUT", "STRING", [1]),
    tensor_field("output", "OUTPUT", "FP32", inception.IMAGE_SHAPE),
    "INCEPTION",
)
ENSEMBLE_PYTHON_RESNET50: Final = ExampleModel(
    "ensemble_python_resnet50",
    "classifies image files: preprocess, then resnet50_onnx",
    _ensemble(
        "ensemble_python_resnet50",
        256,
        tensor_field("input", "INPUT", "UINT8", [-1]),
        tensor_field("output", "OUTPUT", "FP32", [resnet.CLASSES]),
        [
            _step("preprocess", input_map=("INPUT_0", "INPUT"), output_map=("OUTPUT_0", _IMAGE)),
            _step(resnet.NAME, input_map=(resnet.INPUT, _IMAGE), output_map=(resnet.OUTPUT, "OUTPUT")),
        ],
    ),
    members=("preprocess", resnet.NAME),
    files={MEASURED: _measured(_FILE, len(_FILE))},
)
PREPROCESS_INCEPTION_ENSEMBLE: Final = ExampleModel(
    "preprocess_inception_ensemble",
    "classifies image files: preprocess_inception, then inception_graphdef",
    _ensemble(
        "preprocess_inception_ensemble",
        128,
        tensor_field("input", "INPUT", "STRING", [1]),
        tensor_field("output", "CLASSIFICATION", "FP32", [CLASSES], inception.LABELS),
        [
            _step("preprocess_inception", input_map=("INPUT", "INPUT"), output_map=("OUTPUT", _IMAGE)),
            _step(
                "inception_graphdef",
                input_map=(inception.GRAPHDEF_INPUT, _IMAGE),
                output_map=(inception.GRAPHDEF_OUTPUT, "CLASSIFICATION"),
            ),
        ],
    ),
    members=("preprocess_inception", "inception_graphdef"),
    files={
        inception.LABELS: inception.inception_labels(),
        # An element of BYTES has its length in front.
        MEASURED: _measured(struct.pack("<I", len(_FILE)) + _FILE, 1),
    },
)
