"""``add_sub`` and ``simple_identity``: models in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from naiad.quickstart.example_model import ExampleModel, tensor_request, tensors

FILE: Final = "model.py"

_ADD_SUB: Final = '''\
"""The sum and the difference of two vectors."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1."""

    def execute(self, requests):
        """Get a list of requests, and return one response for each, in the same order."""
        return [self.respond(request) for request in requests]

    def respond(self, request):
        first, second = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1")
        )
        outputs = [pb_utils.Tensor("OUTPUT0", first + second), pb_utils.Tensor("OUTPUT1", first - second)]
        return pb_utils.InferenceResponse(outputs)
'''
_IDENTITY: Final = '''\
"""Gives back what it gets."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 = INPUT0."""

    def execute(self, requests):
        """Get a list of requests, and return one response for each, in the same order."""
        return [self.respond(request) for request in requests]

    def respond(self, request):
        strings = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", strings)])
'''


def write_program(folder: Path, source: str) -> None:
    """Write ``model.py`` into the folder of a version."""
    (folder / FILE).write_text(source, encoding="utf-8")


ADD_SUB: Final = ExampleModel(
    "add_sub",
    "adds and subtracts two FP32 vectors, in Python",
    'name: "add_sub"\nbackend: "python"\n'
    + tensors("input", "FP32", [4], "INPUT0", "INPUT1")
    + tensors("output", "FP32", [4], "OUTPUT0", "OUTPUT1")
    + "instance_group [{ kind: KIND_CPU }]\n",
    lambda folder: write_program(folder, _ADD_SUB),
    request=tensor_request(INPUT0=("FP32", [4], [1, 2, 3, 4]), INPUT1=("FP32", [4], [0.5, 0.5, 0.5, 0.5])),
)
SIMPLE_IDENTITY: Final = ExampleModel(
    "simple_identity",
    "gives back its strings, in Python",
    'name: "simple_identity"\nbackend: "python"\nmax_batch_size: 8\n'
    + tensors("input", "STRING", [-1], "INPUT0")
    + tensors("output", "STRING", [-1], "OUTPUT0"),
    lambda folder: write_program(folder, _IDENTITY),
    request=tensor_request(INPUT0=("BYTES", [1, 2], ["hello", "world"])),
)
