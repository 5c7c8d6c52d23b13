"""A tree ensemble that XGBoost trains, called through treelite as the backend does."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .form import Array, Caller, Format
from .subjects import TREE_COLUMNS

ROWS, TREES, DEPTH = 2000, 100, 6


def write_trees(network: str, path: Path) -> None:
    """Regression on random rows."""
    import xgboost

    rows = np.random.default_rng(9).random((ROWS, TREE_COLUMNS), np.float32)
    data = xgboost.DMatrix(rows, rows.sum(1) + rows[:, 0] * rows[:, 1])
    xgboost.train({"max_depth": DEPTH, "nthread": 1}, data, TREES).save_model(path)


def load_trees(path: Path, threads: int) -> Caller:
    """Treelite's own interpreter."""
    import treelite

    model = treelite.frontend.load_xgboost_model(path)

    def call(x: Array) -> Array:
        scores: Array = treelite.gtil.predict(model, x, nthread=threads)
        return scores.reshape(len(x), -1).astype(np.float32, copy=False)

    return call


TREES_OF_XGBOOST = Format(
    "xgboost",
    needs=("xgboost", "treelite", "naiad.backends.fil.backend"),
    file="xgboost.json",
    backend="fil",
    threads="threads",
    networks=("trees", "trees_256"),
    write=write_trees,
    load=load_trees,
    tensors=("input__0", "output__0"),
)
