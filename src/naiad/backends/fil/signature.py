"""The tensors of a forest, and what of its scores they hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from naiad.backends.shared.completion import GraphSignature
from naiad.backends.shared.signature import ModelTensor
from naiad.errors import ModelLoadError
from naiad.tensor.dtypes import BY_WIRE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from naiad.backends.fil.forest import Array, Forest
    from naiad.backends.fil.settings import ForestSettings

INPUT: Final = "input__0"
OUTPUT: Final = "output__0"
_SHAPLEY: Final = "treeshap_output"

Finish = Callable[["Array"], "Array"]
"""Makes the output ([rows, width], FP32) of the scores ([rows, columns])."""


def signature_of(forest: Forest, width: int) -> GraphSignature:
    """Its tensors with an output of ``width`` columns."""
    return GraphSignature((_tensor(INPUT, forest.features),), (_tensor(OUTPUT, width),))


def refuse_shapley(model: str, outputs: Iterable[str]) -> None:
    """Refuse the output of the reference that explains a result."""
    if _SHAPLEY in outputs:
        raise ModelLoadError(
            f"model '{model}': output '{_SHAPLEY}' asks for Shapley values, which this version does not compute; "
            f"remove the output"
        )


def widths(model: str, forest: Forest, settings: ForestSettings) -> tuple[int, ...]:
    """How many columns the output may have, the usual number first.

    Raises:
        ModelLoadError: the parameters ask for classes of a model that has none.
    """
    asked = "predict_proba" if settings.predict_proba else "output_class" if settings.output_class else ""
    if asked and forest.classes == 0 and not (asked == "output_class" and forest.columns == 1):
        raise ModelLoadError(
            f"model '{model}': parameter '{asked}' is true, and the model ({forest.title}) is no classifier: it has "
            f"{forest.columns} output values and no classes; remove the parameter"
        )
    if settings.predict_proba:
        # Two classes need one number; the reference has configurations with both.
        return (2, 1) if forest.classes == 2 else (forest.classes,)
    return (1,) if settings.output_class else (forest.columns,)


def finish_of(forest: Forest, settings: ForestSettings, width: int) -> Finish:
    """The function for an output of ``width`` columns."""
    if settings.predict_proba and forest.classes == 2:
        if width == forest.columns:
            return _plain
        return _both if width == 2 else _positive
    if settings.predict_proba or not settings.output_class:
        return _plain
    if forest.columns > 2:
        return _largest
    return partial(_above, settings.threshold)


def _tensor(name: str, columns: int) -> ModelTensor:
    return ModelTensor(name, BY_WIRE["FP32"], "float32", (-1, columns))


def _plain(scores: Array) -> Array:
    made: Array = scores.astype(np.float32, copy=False)
    return made


def _both(scores: Array) -> Array:
    made: Array = np.concatenate((1 - scores, scores), axis=1).astype(np.float32, copy=False)
    return made


def _positive(scores: Array) -> Array:
    made: Array = scores[:, 1:].astype(np.float32)
    return made


def _largest(scores: Array) -> Array:
    made: Array = scores.argmax(axis=1, keepdims=True).astype(np.float32)
    return made


def _above(threshold: float, scores: Array) -> Array:
    """Class 1 where its probability, the last column, is above the threshold."""
    made: Array = (scores[:, -1:] > threshold).astype(np.float32)
    return made
