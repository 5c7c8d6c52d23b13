"""Forests: loaded from a file, and run on rows of numbers.

``treelite`` is imported inside functions, so that a server without forests does not need it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.backends.fil.failures import remedy_of
from naiad.backends.fil.formats import JOBLIB, LIGHTGBM, SKOPS, TREELITE, XGBOOST, XGBOOST_UBJ, ForestFormat
from naiad.backends.fil.leaf_table import table_of
from naiad.backends.fil.lightgbm_text import text_problem
from naiad.backends.fil.trial import try_file
from naiad.backends.fil.trial_main import check_model, reason_of
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, Any]

# Formats whose numbers treelite takes as they are; it checks those of the others while it reads them.
_TRIED: Final = (TREELITE, XGBOOST)
# The kinds of tasks of treelite that choose classes: binary and of several classes.
_CLASSIFIERS: Final = (0, 2)


@dataclass(frozen=True, slots=True)
class Forest:
    """A loaded model.

    Attributes:
        features: columns of its input.
        columns: columns of its scores.
        classes: how many it chooses from; 0 for a model that is no classifier. A binary one may have a single column
            of scores, the probability of class 1.
        title: what it is, for error texts.
        scores: from rows ([rows, features] of FP32 or FP64) and a number of threads to [rows, columns]; may be called
            by several threads at once.
    """

    features: int
    columns: int
    classes: int
    title: str
    scores: Callable[[Array, int], Array]


def load_forest(model: str, file: Path, file_format: ForestFormat, unknown_fields: bool) -> Forest:
    """The forest in a file of any format but those of scikit-learn.

    Raises:
        ModelLoadError: treelite cannot read it, or it is cut short.
    """
    if file_format in (SKOPS, JOBLIB):
        raise ValueError(f"{file_format.title} is no format of treelite")
    if file_format is LIGHTGBM:
        _check_text(model, file)
    if file_format in _TRIED:
        try_file(model, file, file_format)
    try:
        handle = _read(file, file_format, unknown_fields)
        if file_format not in _TRIED:
            check_model(handle)
        return of_treelite(model, str(file), handle, file_format.title)
    except ModelLoadError:
        raise
    # UnicodeDecodeError is what treelite's own error becomes where it quotes bytes of the file.
    except Exception as error:
        reason = "it is damaged" if isinstance(error, UnicodeDecodeError) else reason_of(error)
        raise ModelLoadError(
            f"model '{model}': treelite cannot read {file} as {file_format.title}: {reason}; {remedy_of(file, reason)}"
        ) from error


def of_treelite(model: str, place: str, handle: Any, title: str) -> Forest:
    """A forest that runs on treelite, from a model of its own.

    Raises:
        ModelLoadError: it is a classifier with several outputs.
    """
    header = handle.get_header_accessor()
    targets = int(header.get_field("num_target")[0])
    classes = int(np.max(header.get_field("num_class")))
    is_classifier = int(header.get_field("task_type")[0]) in _CLASSIFIERS
    if targets > 1 and is_classifier:
        raise ModelLoadError(
            f"model '{model}': {place} is a classifier with {targets} targets, and output__0 has room for one; train a "
            f"model for each"
        )
    # A classifier of two classes has one score in XGBoost and LightGBM, and two in scikit-learn.
    count = max(2, classes) if is_classifier else 0
    columns = max(targets, classes)
    scores = partial(_scores, handle, columns)
    table = table_of(handle, columns, scores)
    return Forest(handle.num_feature, columns, count, title, scores if table is None else table.scores)


def _scores(handle: Any, columns: int, rows: Array, threads: int) -> Array:
    import treelite

    found: Array = treelite.gtil.predict(handle, rows, nthread=threads)
    # Treelite has an axis for targets and one for classes.
    return found.reshape(len(rows), columns)


def _read(file: Path, file_format: ForestFormat, unknown_fields: bool) -> Any:
    import treelite

    if file_format is TREELITE:
        return treelite.Model.deserialize(file)
    if file_format is LIGHTGBM:
        return treelite.frontend.load_lightgbm_model(file)
    if file_format is XGBOOST:
        return treelite.frontend.load_xgboost_model_legacy_binary(file)
    kind = "ubjson" if file_format is XGBOOST_UBJ else "json"
    return treelite.frontend.load_xgboost_model(file, format_choice=kind, allow_unknown_field=unknown_fields)


def _check_text(model: str, file: Path) -> None:
    if problem := text_problem(file.read_bytes()):
        raise ModelLoadError(
            f"model '{model}': treelite cannot read {file} as {LIGHTGBM.title}: {problem}; the file is damaged or cut "
            f"short; save or copy it again"
        )
