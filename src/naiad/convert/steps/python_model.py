"""A Python callable as a Python model: its file, or the callable pickled, and a model.py that calls it."""

from __future__ import annotations

import inspect
import pickle
import shutil
from pathlib import Path
from typing import Any, Final

from naiad.convert.errors import StepError
from naiad.convert.samples import takes_no_arguments
from naiad.convert.signature import SourceSignature, identifier
from naiad.convert.source import PICKLE
from naiad.convert.user_code import load_object

_FROM_FILE: Final = """\
sys.path.insert(0, FOLDER)
from {module} import {function} as function  # noqa: E402
"""
_FROM_PICKLE: Final = """\
# Pickled by value: cloudpickle has to be installed.
with open(os.path.join(FOLDER, {file!r}), "rb") as file:
    function = pickle.load(file)
"""
_PICKLED: Final = "source.pkl"
_MODEL: Final = '''\
"""Serves {shown}."""

import os
import pickle
import sys

import numpy as np
import triton_python_backend_utils as pb_utils

FOLDER = os.path.dirname(os.path.abspath(__file__))
{load}

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
    """Write ``model.py``, and beside it a copy of the callable's own file, or of its pickle."""
    known = SourceSignature.from_json(signature)
    function, shown, load, kept = _pickled(model, file) if model.startswith(PICKLE) else _of_file(model, file)
    arguments = inspect.signature(function).parameters
    text = _MODEL.format(
        shown=shown,
        load=load.rstrip(),
        inputs=[(tensor.name, identifier(tensor.name)) for tensor in known.inputs],
        outputs=[tensor.name for tensor in known.outputs],
        by_name=all(identifier(tensor.name) in arguments for tensor in known.inputs),
    )
    Path(file).write_text(text, encoding="utf-8")
    names = {"inputs": [t.name for t in known.inputs], "outputs": [t.name for t in known.outputs]}
    return {"file": file, **names, **kept}


def _of_file(model: str, file: str) -> tuple[Any, str, str, dict[str, Any]]:
    """The function, its name for the reader, the lines that load it, and what the step returns of it."""
    place, _, name = model.rpartition(":")
    if not place.endswith(".py"):
        raise StepError("only a function of a Python file becomes a Python model", "give it as file.py:name")
    found = load_object(model)
    if takes_no_arguments(found) or "." in name:
        raise StepError(f"{model} makes the model when it is called", "name the function itself")
    copy = Path(file).with_name(f"source_{Path(place).stem}.py")
    shutil.copyfile(place, copy)
    load = _FROM_FILE.format(module=copy.stem, function=name)
    notes = [f"{copy.name} is a copy: what it imports must be there too"]
    return found, f"{name} of {Path(place).name}", load, {"callable": f"{copy}:{name}", "notes": notes}


def _pickled(model: str, file: str) -> tuple[Any, str, str, dict[str, Any]]:
    """The parts of a model, as ``_of_file`` returns them, of a callable that the same program has pickled."""
    copy = Path(file).with_name(_PICKLED)
    shutil.copyfile(model.removeprefix(PICKLE), copy)
    with copy.open("rb") as opened:
        found = pickle.load(opened)
    if takes_no_arguments(found):
        raise StepError("the function makes the model when it is called", "give the function itself")
    notes = [f"{copy.name} is a pickle: cloudpickle and what the function imports must be there too"]
    shown = getattr(found, "__name__", type(found).__name__)
    return (
        found,
        f"the function {shown}",
        _FROM_PICKLE.format(file=_PICKLED),
        {"callable": f"{PICKLE}{copy}", "notes": notes},
    )
