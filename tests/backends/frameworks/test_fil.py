"""The contract of framework backends for forests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("treelite", reason="the extra fil is not installed")
xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")

from backends.contract import FrameworkContract  # noqa: E402
from naiad.backend_api.backend import Arrays  # noqa: E402
from support.forest_models import THREE, xgboost_model  # noqa: E402
from support.framework import Framework, Signature, Tensor, damaged  # noqa: E402

TREES = "a forest has one input of numbers and one output, with fixed names and datatypes"
DAMAGED = r"treelite cannot read \S+xgboost\.json as XGBoost JSON: "


def network(path: Path, seed: int, hidden: int) -> Signature:
    """A forest of a few trees, with a classifier's three outputs."""
    more = {"num_class": 3, "subsample": 0.5}
    xgboost_model("multi:softprob", THREE, trees=max(4, hidden // 1000), seed=seed, **more).save_model(path)
    return Signature((Tensor("input__0", "FP32", (4,)),), (Tensor("output__0", "FP32", (3,)),))


@cache
def booster_of(path: Path) -> Any:
    return xgboost.Booster({"nthread": 1}, model_file=path)


def run(path: Path, inputs: Arrays) -> Arrays:
    return {"output__0": np.asarray(booster_of(path).inplace_predict(inputs["input__0"]))}


class TestContract(FrameworkContract):
    framework = Framework(
        name="fil",
        config='backend: "fil"',
        file="xgboost.json",
        network=network,
        run=run,
        broken=damaged(
            missing=r"there is no file \S+xgboost\.json", empty=r"xgboost\.json is empty", garbage=DAMAGED, cut=DAMAGED
        ),
        tolerance=1e-6,
        tolerance_reason="the library adds up the trees in another order",
        completed_batch_size=1024,
        mismatches={
            "name": "unexpected inference input 'wrong', allowed inputs are: input__0",
            "datatype": "says TYPE_INT32, the model has TYPE_FP32",
            "dims": "axis 1 is 5 where the model has 4",
        },
        lacks={
            **dict.fromkeys(("identity", "odd_names", "zero_size", "scalar", "ragged", "failing"), TREES),
            "memory": "a forest of 64 MiB takes minutes to train",
        },
    )
