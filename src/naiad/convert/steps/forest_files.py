"""Checkpoints of treelite from forests of scikit-learn, XGBoost and LightGBM."""

from __future__ import annotations

from typing import Any

from naiad.convert.errors import StepError
from naiad.convert.source import SourceKind, load_source


def checkpoint(model: str, file: str) -> dict[str, Any]:
    """Write the forest."""
    import treelite

    source = load_source(model)
    found = source.model
    if source.kind is SourceKind.SKLEARN:
        forest = _of_sklearn(found)
    elif source.kind is SourceKind.XGBOOST:
        forest = treelite.frontend.from_xgboost(found if hasattr(found, "save_raw") else found.get_booster())
    elif source.kind is SourceKind.LIGHTGBM:
        forest = treelite.frontend.from_lightgbm(getattr(found, "booster_", found))
    else:
        raise StepError(f"a model of {source.kind} is no forest")
    forest.serialize(file)
    return {"file": file, "inputs": ["input__0"], "outputs": ["output__0"], "notes": []}


def _of_sklearn(estimator: Any) -> Any:
    import treelite

    try:
        return treelite.sklearn.import_model(estimator)
    except (treelite.TreeliteError, NotImplementedError, AttributeError) as error:
        name = type(estimator).__name__
        raise StepError(f"treelite takes no {name}: {error}", "treelite is for forests of trees alone") from error
