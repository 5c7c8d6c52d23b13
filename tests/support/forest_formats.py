"""One forest in each format of the backend fil, with what its own library computes. Importing this needs them all."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import skops.io
import treelite
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from support.forest_models import LEGACY, NUMBER, ROWS, THREE, TWO, lightgbm_model, parameters, xgboost_model

Array = np.ndarray[Any, Any]
Compute = Callable[[Array], Any]


@dataclass(frozen=True)
class FormatCase:
    """A model in one format.

    Attributes:
        file: the name of its file.
        write: writes the file; returns the function of its own library, from rows to outputs.
        columns: of its input.
        width: of its output.
        more: text of its configuration, which is complete without.
        takes_nan: whether rows may have NaN.
    """

    file: str
    write: Callable[[Path], Compute]
    columns: int = 4
    width: int = 3
    more: str = ""
    takes_nan: bool = True


def _xgboost(path: Path) -> Compute:
    booster = xgboost_model("multi:softprob", THREE, num_class=3)
    booster.save_model(path)
    compute: Compute = booster.inplace_predict
    return compute


def _legacy(path: Path) -> Compute:
    path.write_bytes(zlib.decompress(base64.b85decode(LEGACY)))
    return _on_treelite(treelite.frontend.load_xgboost_model_legacy_binary(path))


def _lightgbm(path: Path) -> Compute:
    booster = lightgbm_model("regression", NUMBER)
    booster.save_model(path)
    compute: Compute = booster.predict
    return compute


def _checkpoint(path: Path) -> Compute:
    source = path.with_name("source.json")
    xgboost_model("multi:softprob", THREE, num_class=3, seed=1, subsample=0.5).save_model(source)
    model = treelite.frontend.load_xgboost_model(source)
    source.unlink()
    model.serialize(path)
    return _on_treelite(model)


def _on_treelite(model: Any) -> Compute:
    return lambda rows: treelite.gtil.predict(model, rows, nthread=1)


def _skops(path: Path) -> Compute:
    estimator = RandomForestClassifier(10, max_depth=4, random_state=0).fit(ROWS, THREE)
    skops.io.dump(estimator, path)
    compute: Compute = estimator.predict_proba
    return compute


def _joblib(path: Path) -> Compute:
    estimator = make_pipeline(StandardScaler(), RandomForestClassifier(10, max_depth=4, random_state=0)).fit(ROWS, TWO)
    joblib.dump(estimator, path)
    compute: Compute = estimator.predict_proba
    return compute


def _linear(path: Path) -> Compute:
    estimator = make_pipeline(StandardScaler(), LogisticRegression()).fit(ROWS, TWO)
    skops.io.dump(estimator, path)
    compute: Compute = estimator.predict_proba
    return compute


PROBABILITIES = parameters(predict_proba="true")
CASES = {
    "json": FormatCase("xgboost.json", _xgboost),
    "ubjson": FormatCase("xgboost.ubj", _xgboost),
    "legacy": FormatCase("xgboost.model", _legacy, columns=3, width=1),
    "lightgbm": FormatCase("model.txt", _lightgbm, width=1),
    "treelite": FormatCase("checkpoint.tl", _checkpoint),
    "skops": FormatCase("model.skops", _skops, more=PROBABILITIES),
    "joblib": FormatCase("model.joblib", _joblib, width=2, more=PROBABILITIES),
}
LINEAR = FormatCase("model.skops", _linear, width=2, more=PROBABILITIES, takes_nan=False)
"""No forest: scikit-learn itself runs it, and fails for rows with NaN."""


def large_checkpoint(path: Path, trees: int) -> None:
    """A forest of many trees: a few that are trained, over and over."""
    source = path.with_name("source.json")
    xgboost_model("reg:squarederror", NUMBER, trees=20, max_depth=8).save_model(source)
    model = treelite.frontend.load_xgboost_model(source)
    source.unlink()
    treelite.Model.concatenate([model] * (trees // 20)).serialize(path)
