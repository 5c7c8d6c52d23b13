"""Forests for tests, trained in a moment by the libraries themselves, and what a backend makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.backends import registry
from naiad.errors import NaiadError
from support.backend_contract import config, context, running, spec, started

FEATURES = 4
RANDOM = np.random.default_rng(7)
ROWS = RANDOM.standard_normal((400, FEATURES)).astype(np.float32)
TESTED = RANDOM.standard_normal((64, FEATURES)).astype(np.float32)
TWO = (ROWS[:, 0] + ROWS[:, 1] > 0).astype(np.int64)
THREE = np.digitize(ROWS[:, 0], [-0.5, 0.5])
NUMBER = (ROWS[:, 0] * 3 + ROWS[:, 1]).astype(np.float64)
LEGACY = (
    "c-l+K%u8cnV6bOqfB;4)jn1bB;D^#lnR$stl~y_V>6yhPnaONW;q;`EqSRC-Iy;I~0CF2U5}$bxxc5I0fZV_Y<==DNZU>|qKyG7!x{rB^u02SO6"
    "^PlOVykO<_XFvM|4;yuUvvJ^K1QgSFtHuEx9ynF)E)E7*~f&Y?s+Yj{W^hUCk6%&r-cg?_JYJ@%wvFjHYe^#kNqHi%ZVCCAnBNQdz(GN2j?6?_9"
    "FN{96)v=_yP_f`w;vTN041ZAwEF#q_jSi_&|yyczl4sB##t~_~59!gb^PTc+)ZBL*A+eBR<}*d}TMalGo|`LR+WJH#hA8iS4=Z%JK1!$BuRR=HU47"
    "PhRNA?LFP`n@}S>KB{HsIfCqk@h@!Sb_Cf8<4@kw=m4@0#y`6|*AZkFdOiUGPAHw9l$DxXl3AAO0<%OZFEKY&$w~>WI8f42DoRa{&&e+?jxR_oO3"
    "YQVs#YpaPRvP-FUT*BFHg-(&nN+EGgPXr1prG!$bJLOAD"
)
"""A binary classifier of 3 features in XGBoost's legacy format, which newer releases cannot write: base 85 of zlib."""
LEGACY_ROWS = np.array([[0, 0, 0], [1, 1, 0], [-1, -1, 0], [0.5, -0.2, 0]], np.float32)
LEGACY_SCORES = np.array([0.29857173562049866, 0.7309231758117676, 0.29857173562049866, 0.6827895641326904], np.float32)


def xgboost_model(objective: str, target: np.ndarray[Any, Any], trees: int = 5, seed: int = 0, **more: Any) -> Any:
    """A booster of XGBoost."""
    import xgboost

    options = {"objective": objective, "max_depth": 3, "nthread": 1, "seed": seed, **more}
    return xgboost.train(options, xgboost.DMatrix(ROWS, target), trees)


def lightgbm_model(objective: str, target: np.ndarray[Any, Any], **more: Any) -> Any:
    """A booster of LightGBM."""
    import lightgbm

    options = {"objective": objective, "num_threads": 1, "verbose": -1, **more}
    return lightgbm.train(options, lightgbm.Dataset(ROWS, target), 5)


def parameters(**values: str) -> str:
    """The text of ``parameters`` of a configuration."""
    return " ".join(f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}' for k, v in values.items())


def tensors(columns: int, width: int = 1, batch: int = 512) -> str:
    """A configuration with these numbers of columns."""
    return (
        f'backend: "fil" max_batch_size: {batch} input {{ name: "input__0" data_type: TYPE_FP32 dims: [ {columns} ] }} '
        f'output {{ name: "output__0" data_type: TYPE_FP32 dims: [ {width} ] }} '
    )


def answer(path: Path, text: str, rows: np.ndarray[Any, Any] = TESTED, **settings: str) -> np.ndarray[Any, Any]:
    """The output of a model with a full configuration."""
    with running("fil", context(path, 1, **settings), spec(text)) as instance:
        return instance.execute({"input__0": rows}, ("output__0",))["output__0"]


def completed(path: Path, text: str = "", **settings: str) -> Any:
    """The configuration that the backend fills in."""
    message = config('backend: "fil" ' + text)
    backend = registry.create("fil", context(path, 1, **settings))
    backend.complete(message)
    backend.close()
    return message


def width_of(path: Path, **values: str) -> int:
    """The columns of the output that the backend finds for these parameters."""
    (output,) = completed(path, parameters(**values)).output
    (width,) = output.dims
    return int(width)


def refusal(path: Path, text: str, **settings: str) -> str:
    """Why a model with a full configuration does not load."""
    with pytest.raises(NaiadError) as caught, started("fil", context(path, 1, **settings), spec(text)):
        pass
    return str(caught.value)
