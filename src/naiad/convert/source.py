"""The model that is converted: what it is, and how it is called."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np

from naiad.convert.errors import StepError
from naiad.convert.outputs import Arrays, as_arrays
from naiad.convert.samples import takes_no_arguments
from naiad.convert.signature import identifier
from naiad.convert.user_code import load_object


class SourceKind(StrEnum):
    """What a source model is."""

    TORCH = "torch"
    EXPORTED = "torch-export"
    TORCHSCRIPT = "torchscript"
    KERAS = "keras"
    SAVEDMODEL = "savedmodel"
    ONNX = "onnx"
    SKLEARN = "scikit-learn"
    XGBOOST = "xgboost"
    LIGHTGBM = "lightgbm"
    PYTHON = "python"


PICKLE: Final = "pickle:"


@dataclass(slots=True)
class SourceModel:
    """A loaded model.

    Attributes:
        model: the framework's object; of ONNX an inference session.
        file: where it was read; None for an object of a Python file.
    """

    kind: SourceKind
    model: Any
    file: Path | None = None
    _called: Any = field(default=None, init=False, repr=False)

    def call(self, sample: Mapping[str, np.ndarray[Any, Any]]) -> Any:
        """The model's own return value for one sample."""
        if self._called is None:
            # An exported program becomes a module once: that takes a hundred times as long as a call of a small one.
            self._called = self.model.module() if self.kind is SourceKind.EXPORTED else self.model
        return _CALLS[self.kind](self._called, sample)

    def arrays(self, sample: Mapping[str, np.ndarray[Any, Any]]) -> Arrays:
        """The outputs for one sample."""
        return as_arrays(self.call(sample))


def load_source(place: str) -> SourceModel:
    """The model at ``place``: a file, a folder, ``file.py:name``, or ``pickle:FILE`` with a pickled object.

    A function without required arguments is called, and returns the model.

    Raises:
        StepError: there is no such model, or nothing here knows what it is.
    """
    if place.startswith(PICKLE):
        # Written by the conversion itself, from an object of the same program.
        with Path(place.removeprefix(PICKLE)).open("rb") as file:
            return _of_object(pickle.load(file))
    before, _, name = place.rpartition(":")
    if before.endswith(".py") and name:
        return _of_object(load_object(place))
    path = Path(place)
    if not path.exists():
        raise StepError(f"there is no {path}", "give a model's file, a SavedModel's folder, or file.py:name")
    return _of_file(path)


def torch_tensors(sample: Mapping[str, np.ndarray[Any, Any]]) -> list[Any]:
    """The inputs of a sample as torch's tensors, in their order."""
    import torch

    return [torch.from_numpy(np.array(array, order="C")) for array in sample.values()]


def named_arguments(model: Any, names: list[str]) -> bool:
    """Whether ``forward`` has arguments of just these names, so that they can be passed by name."""
    import inspect

    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return all(name in parameters and parameters[name].kind in kinds for name in map(identifier, names))


def _of_object(found: Any) -> SourceModel:
    kind = _kind_of(found)
    if kind is SourceKind.PYTHON and callable(found) and takes_no_arguments(found):
        made = found()
        kind = _kind_of(made)
        if kind is SourceKind.PYTHON and not callable(made):
            raise StepError(
                f"the function returns a {type(made).__name__}, which is no model",
                "return a torch.nn.Module, a Keras model, an estimator or a function",
            )
        found = made
    elif kind is SourceKind.PYTHON and not callable(found):
        raise StepError(
            f"an object of the type {type(found).__name__} is no model", "name a model, or a function that returns one"
        )
    if kind is SourceKind.TORCH:
        found = found.eval().cpu()
    return SourceModel(kind, found)


def _kind_of(found: Any) -> SourceKind:
    """By the frameworks that are imported already: an object of a framework has imported it."""
    torch, keras = sys.modules.get("torch"), sys.modules.get("keras")
    if torch is not None and isinstance(found, torch.jit.ScriptModule):
        return SourceKind.TORCHSCRIPT
    if torch is not None and isinstance(found, torch.nn.Module):
        return SourceKind.TORCH
    if torch is not None and hasattr(torch, "export") and isinstance(found, torch.export.ExportedProgram):
        return SourceKind.EXPORTED
    if keras is not None and isinstance(found, keras.Model):
        return SourceKind.KERAS
    family = {cls.__module__.partition(".")[0] for cls in type(found).__mro__}
    if "xgboost" in family:
        return SourceKind.XGBOOST
    if "lightgbm" in family:
        return SourceKind.LIGHTGBM
    if "sklearn" in family:
        return SourceKind.SKLEARN
    return SourceKind.PYTHON


def _of_file(path: Path) -> SourceModel:
    if path.is_dir():
        if (path / "saved_model.pb").exists():
            return SourceModel(SourceKind.SAVEDMODEL, _saved_model(path), path)
        raise StepError(f"{path} has no saved_model.pb", "give the folder of a SavedModel, or a model's file")
    if path.suffix == ".py":
        advice = f"name the model in it, or a function that returns one: {path}:NAME"
        raise StepError(f"'{path.name}' is a program", advice)
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise StepError(
            f"nothing here reads '{path.name}'",
            f"known are {', '.join(_READERS)}, a SavedModel's folder, and file.py:name",
        )
    return reader(path)


def _exported(path: Path) -> SourceModel:
    import torch

    return SourceModel(SourceKind.EXPORTED, torch.export.load(str(path)), path)


def _torchscript(path: Path) -> SourceModel:
    import torch

    return SourceModel(SourceKind.TORCHSCRIPT, torch.jit.load(str(path), map_location="cpu").eval(), path)


def _keras(path: Path) -> SourceModel:
    import keras

    return SourceModel(SourceKind.KERAS, keras.models.load_model(path, compile=False), path)


def _saved_model(path: Path) -> Any:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    signatures = list(loaded.signatures)
    if not signatures:
        raise StepError(f"{path} has no signatures", "save it with one, such as model.export() of Keras does")
    chosen = loaded.signatures["serving_default" if "serving_default" in signatures else signatures[0]]
    # The function holds the loaded object weakly.
    chosen.naiad_owner = loaded
    return chosen


def _onnx(path: Path) -> SourceModel:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return SourceModel(SourceKind.ONNX, session, path)


def _xgboost(path: Path) -> SourceModel:
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(path)
    return SourceModel(SourceKind.XGBOOST, booster, path)


def _lightgbm(path: Path) -> SourceModel:
    import lightgbm

    return SourceModel(SourceKind.LIGHTGBM, lightgbm.Booster(model_file=str(path)), path)


def _skops(path: Path) -> SourceModel:
    import skops.io

    return _of_object(skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path)))


def _joblib(path: Path) -> SourceModel:
    import joblib

    return _of_object(joblib.load(path))


_READERS: Final = {
    ".pt2": _exported,
    ".pt": _torchscript,
    ".keras": _keras,
    ".h5": _keras,
    ".onnx": _onnx,
    ".json": _xgboost,
    ".ubj": _xgboost,
    ".txt": _lightgbm,
    ".skops": _skops,
    ".joblib": _joblib,
    ".pkl": _joblib,
}


def _call_torch(model: Any, sample: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    import torch

    tensors = torch_tensors(sample)
    names = list(sample)
    with torch.inference_mode():
        if named_arguments(model, names):
            return model(**dict(zip(map(identifier, names), tensors, strict=True)))
        return model(*tensors)


def _call_flat(model: Any, sample: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    import torch

    with torch.inference_mode():
        return model(*torch_tensors(sample))


def _call_keras(model: Any, sample: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    inputs = list(sample.values())
    return model(inputs[0] if len(inputs) == 1 else inputs, training=False)


def _call_saved_model(function: Any, sample: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    import tensorflow as tf

    names = list(function.structured_input_signature[1])
    known = sample if set(sample) == set(names) else dict(zip(names, sample.values(), strict=True))
    return function(**{name: tf.constant(array) for name, array in known.items()})


def _call_onnx(session: Any, sample: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    names = [one.name for one in session.get_inputs()]
    known = dict(sample) if set(sample) == set(names) else dict(zip(names, sample.values(), strict=True))
    outputs = [one.name for one in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, known), strict=True))


def _call_sklearn(model: Any, sample: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    rows = next(iter(sample.values()))
    return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)


def _call_xgboost(model: Any, sample: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    rows = next(iter(sample.values()))
    return model.inplace_predict(rows) if type(model).__name__ == "Booster" else _call_sklearn(model, sample)


def _call_lightgbm(model: Any, sample: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    rows = next(iter(sample.values()))
    return model.predict(rows) if type(model).__name__ == "Booster" else _call_sklearn(model, sample)


def _call_python(model: Any, sample: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if _has_names(model, sample):
        return model(**{identifier(name): array for name, array in sample.items()})
    return model(*sample.values())


def _has_names(model: Any, sample: Mapping[str, Any]) -> bool:
    import inspect

    try:
        parameters = inspect.signature(model).parameters
    except (TypeError, ValueError):
        return False
    return all(identifier(name) in parameters for name in sample)


_CALLS: Final = {
    SourceKind.TORCH: _call_torch,
    SourceKind.EXPORTED: _call_flat,
    SourceKind.TORCHSCRIPT: _call_flat,
    SourceKind.KERAS: _call_keras,
    SourceKind.SAVEDMODEL: _call_saved_model,
    SourceKind.ONNX: _call_onnx,
    SourceKind.SKLEARN: _call_sklearn,
    SourceKind.XGBOOST: _call_xgboost,
    SourceKind.LIGHTGBM: _call_lightgbm,
    SourceKind.PYTHON: _call_python,
}
