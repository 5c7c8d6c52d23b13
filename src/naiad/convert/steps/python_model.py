"""A Python callable as a Python model: its file, and a model.py that calls it."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import Any, Final

from naiad.convert.errors import StepError
from naiad.convert.samples import takes_no_arguments
from naiad.convert.signature import SourceSignature, identifier
from naiad.convert.user_code import load_object

_MODEL: Final = '''\
"""Serves {function} of {file}."""

import os
import sys

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from {module} import {function} as function  # noqa: E402

INPUTS = {inputs!r}
OUTPUTS = {outputs!r}
BY_NAME = {by_name!r}


class TritonPythonModel:
    """Calls the function once for each request."""

    def execute(self, requests):
        """The responses, in the order of the requests."""
        return [self.respond(request) for request in requests]

    def respond(self, request):
        """One call."""
        arrays = [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name, _ in INPUTS]
        if BY_NAME:
            returned = function(**{{argument: array for (_, argument), array in zip(INPUTS, arrays)}})
        else:
            returned = function(*arrays)
        values = list(returned.values()) if isinstance(returned, dict) else returned
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        tensors = [pb_utils.Tensor(name, np.asarray(value)) for name, value in zip(OUTPUTS, values)]
        return pb_utils.InferenceResponse(output_tensors=tensors)
'''


def write(model: str, signature: dict[str, Any], file: str) -> dict[str, Any]:
    """Write ``model.py`` and a copy of the callable's own file beside it."""
    place, _, name = model.rpartition(":")
    if not place.endswith(".py"):
        raise StepError("only a function of a Python file becomes a Python model", "give it as file.py:name")
    found, known = load_object(model), SourceSignature.from_json(signature)
    if takes_no_arguments(found) or "." in name:
        raise StepError(f"{model} makes the model when it is called", "name the function itself")
    arguments = inspect.signature(found).parameters
    by_name = all(identifier(tensor.name) in arguments for tensor in known.inputs)
    copy = Path(file).with_name(f"source_{Path(place).stem}.py")
    shutil.copyfile(place, copy)
    text = _MODEL.format(
        file=Path(place).name,
        module=copy.stem,
        function=name,
        inputs=[(tensor.name, identifier(tensor.name)) for tensor in known.inputs],
        outputs=[tensor.name for tensor in known.outputs],
        by_name=by_name,
    )
    Path(file).write_text(text, encoding="utf-8")
    names = {"inputs": [t.name for t in known.inputs], "outputs": [t.name for t in known.outputs]}
    return {
        "file": file,
        "callable": f"{copy}:{name}",
        **names,
        "notes": [f"{copy.name} is a copy: what it imports must be there too"],
    }
