"""TensorFlow's SavedModel, from Keras or as it is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from naiad.convert.errors import StepError
from naiad.convert.signature import SourceSignature
from naiad.convert.source import SourceKind, load_source


def saved_model(model: str, signature: dict[str, Any], file: str) -> dict[str, Any]:
    """A SavedModel of a Keras model that runs on TensorFlow; or a copy of the one that is the source."""
    known = SourceSignature.from_json(signature)
    source = load_source(model)
    if source.kind is SourceKind.SAVEDMODEL and source.file is not None:
        shutil.copytree(source.file, file)
        return {"file": file, **tensor_names(source.model, known), "notes": []}
    import keras
    import tensorflow as tf

    if keras.backend.backend() != "tensorflow":
        raise StepError(
            f"Keras runs on {keras.backend.backend()}, and only TensorFlow writes a SavedModel",
            "set KERAS_BACKEND=tensorflow",
        )
    source.model.export(file, format="tf_saved_model", verbose=False)
    function = tf.saved_model.load(file).signatures["serving_default"]
    assert Path(file, "saved_model.pb").exists()
    return {"file": file, **tensor_names(function, known), "notes": []}


def tensor_names(function: Any, signature: SourceSignature) -> dict[str, list[str]]:
    """The SavedModel's own names of the inputs and outputs, in the signature's order."""
    inputs = sorted(function.structured_input_signature[1])
    wanted = [tensor.name for tensor in signature.inputs]
    outputs = list(function.structured_outputs)
    wanted_outputs = [tensor.name for tensor in signature.outputs]
    return {
        "inputs": wanted if set(wanted) == set(inputs) else inputs,
        "outputs": wanted_outputs if set(wanted_outputs) == set(outputs) else outputs,
    }
