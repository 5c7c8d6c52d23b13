"""All models of the quickstart, and which of them can be written here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from naiad.quickstart.arithmetic import SIMPLE, SIMPLE_INT8, SIMPLE_STRING
from naiad.quickstart.builtin_models import CUSTOM_IDENTITY_INT32, REPEAT_INT32
from naiad.quickstart.example_model import ExampleModel
from naiad.quickstart.linear_model import LINEAR_MODEL
from naiad.quickstart.networks.densenet import DENSENET_ONNX
from naiad.quickstart.networks.inception import INCEPTION_GRAPHDEF, INCEPTION_ONNX
from naiad.quickstart.networks.resnet import RESNET50_ONNX
from naiad.quickstart.preprocessing import (
    ENSEMBLE_PYTHON_RESNET50,
    PREPROCESS,
    PREPROCESS_INCEPTION,
    PREPROCESS_INCEPTION_ENSEMBLE,
)
from naiad.quickstart.python_models import ADD_SUB, SIMPLE_IDENTITY
from naiad.quickstart.sequences import SIMPLE_DYNA_SEQUENCE, SIMPLE_SEQUENCE, SIMPLE_STRING_DYNA_SEQUENCE

MODELS: Final = {
    model.name: model
    for model in (
        *(SIMPLE, SIMPLE_INT8, SIMPLE_STRING, SIMPLE_IDENTITY),
        *(SIMPLE_SEQUENCE, SIMPLE_DYNA_SEQUENCE, SIMPLE_STRING_DYNA_SEQUENCE),
        *(ADD_SUB, CUSTOM_IDENTITY_INT32, REPEAT_INT32, LINEAR_MODEL),
        *(DENSENET_ONNX, INCEPTION_ONNX, INCEPTION_GRAPHDEF, RESNET50_ONNX),
        *(PREPROCESS, ENSEMBLE_PYTHON_RESNET50, PREPROCESS_INCEPTION, PREPROCESS_INCEPTION_ENSEMBLE),
    )
}
"""The models by name; an ensemble stands behind its members."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The models that are written.

    Attributes:
        models: in the order in which they are written.
        left_out: why the others are not, by name.
    """

    models: tuple[ExampleModel, ...]
    left_out: Mapping[str, str]


def select(names: Sequence[str] = ()) -> Selection:
    """The models of these names with the members that they run; all models for no names.

    A model whose packages are not installed is left out, and so are the ensembles that run it.
    """
    wanted = _with_members(names) if names else MODELS.keys()
    chosen: list[ExampleModel] = []
    left_out: dict[str, str] = {}
    for name, model in MODELS.items():
        if name not in wanted:
            continue
        if reason := _obstacle(model, left_out):
            left_out[name] = reason
        else:
            chosen.append(model)
    return Selection(tuple(chosen), left_out)


def _with_members(names: Sequence[str]) -> Collection[str]:
    return {each for name in names for each in (name, *MODELS[name].members)}


def _obstacle(model: ExampleModel, left_out: Collection[str]) -> str:
    """Why a model cannot be written or served here; empty if it can."""
    missing = [package.remedy for package in model.packages if not package.is_installed]
    missing += [f"it runs '{member}', which is left out" for member in model.members if member in left_out]
    return "; ".join(missing[:1])
