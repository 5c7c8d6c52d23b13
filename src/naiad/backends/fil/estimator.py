"""Models of scikit-learn: forests on treelite, the rest on scikit-learn itself.

``sklearn``, ``skops`` and ``joblib`` are imported inside functions, so that other forests do not need them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.backends.fil.forest import Array, Forest, of_treelite
from naiad.backends.fil.formats import SKOPS, ForestFormat
from naiad.backends.fil.settings import PICKLES
from naiad.backends.fil.trial_main import reason_of
from naiad.backends.shared.import_lock import IMPORT_LOCK
from naiad.errors import BackendUnavailableError, ModelLoadError, first_line
from naiad.extras import how_to_install

if TYPE_CHECKING:
    from pathlib import Path

# What skops does not trust by itself: the parts of forests that are compiled code, which make no calls when loaded.
_FOREST_TYPES: Final = ("sklearn.tree._tree.", "sklearn.ensemble.", "sklearn._loss.")


def load_estimator(model: str, file: Path, file_format: ForestFormat, pickles: bool) -> Forest:
    """The forest, pipeline or other estimator in a file of skops or in a pickle.

    Raises:
        BackendUnavailableError: a package is missing.
        ModelLoadError: the file cannot be read, may not be, or has no fitted estimator.
    """
    if file_format is not SKOPS and not pickles:
        raise ModelLoadError(
            f"model '{model}': {file} is a pickle, and a pickle can run any code when it is loaded; save it with "
            f"skops.io.dump as {SKOPS.filename}, or, if you trust every repository of this server, start it with "
            f"--backend-config=fil,{PICKLES}=true"
        )
    # A file names the modules that it needs, and the first look at an estimator imports others.
    with IMPORT_LOCK:
        return _forest(model, file, _estimator(model, file, file_format))


def _estimator(model: str, file: Path, file_format: ForestFormat) -> Any:
    try:
        return _read_skops(model, file) if file_format is SKOPS else _read_pickle(file)
    except ModelLoadError:
        raise
    except ImportError as error:
        raise BackendUnavailableError(
            f"model '{model}': {file} needs a package that cannot be imported ({first_line(error)}); run: "
            f"{how_to_install('sklearn')}"
        ) from error
    except Exception as error:
        raise ModelLoadError(
            f"model '{model}': {file} cannot be read as {file_format.title}: {type(error).__name__}: "
            f"{reason_of(error)}; the file is damaged, cut short or of another version of scikit-learn; save or copy "
            "it again"
        ) from error


def _read_skops(model: str, file: Path) -> Any:
    import skops.io

    types = skops.io.get_untrusted_types(file=file)
    unknown = [name for name in types if not name.startswith(_FOREST_TYPES)]
    if unknown:
        raise ModelLoadError(
            f"model '{model}': {file} has types that skops does not trust: {', '.join(unknown)}; save a model "
            f"of scikit-learn's own types alone"
        )
    return skops.io.load(file, trusted=types)


def _read_pickle(file: Path) -> Any:
    import joblib

    return joblib.load(file)


def _forest(model: str, file: Path, estimator: Any) -> Forest:
    features = getattr(estimator, "n_features_in_", None)
    if not hasattr(estimator, "predict") or features is None:
        raise ModelLoadError(
            f"model '{model}': {file} holds a {type(estimator).__name__}, expected an estimator of scikit-learn that "
            f"is fitted and has the method predict"
        )
    before, last = _steps(estimator)
    own = _of_treelite(model, file, last)
    if own is None:
        return _of_scikit(estimator, int(features))
    if before is None:
        return own
    scores = partial(_transformed, before, own.scores)
    return Forest(int(features), own.columns, own.classes, own.title, scores)


def _steps(estimator: Any) -> tuple[Any, Any]:
    """The steps before the last of a pipeline, None for none, and the last."""
    from sklearn.pipeline import Pipeline

    if not isinstance(estimator, Pipeline):
        return None, estimator
    return (estimator[:-1] if len(estimator) > 1 else None), estimator[-1]


def _of_treelite(model: str, file: Path, estimator: Any) -> Forest | None:
    """The estimator on treelite; None where treelite does not know its kind."""
    import treelite.sklearn

    # Treelite says no to other kinds with errors of many types.
    try:
        handle = treelite.sklearn.import_model(estimator)
    except Exception:
        return None
    forest = of_treelite(model, str(file), handle, type(estimator).__name__)
    # Scikit-learn's own trees compare numbers of 32 bits, those made from histograms 64.
    if type(estimator).__name__.startswith("Hist"):
        return forest
    return Forest(forest.features, forest.columns, forest.classes, forest.title, partial(_single, forest.scores))


def _of_scikit(estimator: Any, features: int) -> Forest:
    title = type(estimator).__name__
    if hasattr(estimator, "predict_proba"):
        classes = len(estimator.classes_)
        return Forest(features, classes, classes, title, partial(_called, estimator.predict_proba, classes))
    columns = int(np.size(estimator.predict(np.zeros((1, features), np.float32))))
    return Forest(features, columns, 0, title, partial(_called, estimator.predict, columns))


def _called(method: Any, columns: int, rows: Array, threads: int) -> Array:
    return np.asarray(method(rows)).reshape(len(rows), columns)


def _single(scores: Any, rows: Array, threads: int) -> Array:
    found: Array = scores(rows.astype(np.float32, copy=False), threads)
    return found


def _transformed(before: Any, scores: Any, rows: Array, threads: int) -> Array:
    made = before.transform(rows)
    dense = made.toarray() if hasattr(made, "toarray") else np.asarray(made)
    found: Array = scores(dense, threads)
    return found
