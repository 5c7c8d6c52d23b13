"""What ``predict`` is given as the inputs of a model, and outputs as MLflow shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from mlflow_naiad.options import wrong
from naiad.client import InferResult

Array = np.ndarray[Any, Any]
_NAMES = {"BOOL": "bool", "FP16": "float16", "FP32": "float32", "FP64": "float64", "BYTES": "object"}
_DTYPES: dict[str, np.dtype[Any]] = {
    **{name: np.dtype(kind) for name, kind in _NAMES.items()},
    **{f"{sign}INT{bits}": np.dtype(f"{sign}INT{bits}".lower()) for sign in ("", "U") for bits in (8, 16, 32, 64)},
}


def to_inputs(given: Any, expected: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """The inputs by name: arrays by name, columns of a table that are called like them, or the whole for a lone input.

    Raises:
        MlflowException: they are not the model's inputs.
    """
    names = [entry["name"] for entry in expected]
    if hasattr(given, "to_numpy") and hasattr(given, "columns"):
        columns = [str(column) for column in given.columns]
        if set(names) <= set(columns):
            found = {name: given[name].to_numpy() for name in names}
            return {e["name"]: _array(_column(found[e["name"]], e), e) for e in expected}
        given = given.to_numpy()
    if isinstance(given, Mapping) and "inputs" in given and "inputs" not in names:
        given = given["inputs"]
    if isinstance(given, Mapping):
        if missing := [name for name in names if name not in given]:
            raise wrong(f"the model's inputs are {names}, {missing[0]!r} is not given")
        return {entry["name"]: _array(given[entry["name"]], entry) for entry in expected}
    if len(names) != 1:
        raise wrong(f"the model has the inputs {names}: give them by name, or as columns of a table")
    return {names[0]: _array(given, expected[0])}


def _column(values: Array, entry: Mapping[str, Any]) -> Array:
    # A column of a table is one element for each row.
    return values.reshape(-1, 1) if len(entry["shape"]) == 2 and values.ndim == 1 else values


def _array(value: Any, entry: Mapping[str, Any]) -> Array:
    try:
        dtype = _DTYPES[entry["datatype"]]
        if dtype.kind != "O":
            return np.asarray(value).astype(dtype)
        texts = np.asarray(value, object)
        made = [v if isinstance(v, bytes) else str(v).encode() for v in texts.flat]
        return np.array(made, object).reshape(texts.shape)
    except (KeyError, TypeError, ValueError) as error:
        raise wrong(f"the input '{entry['name']}' is {entry['datatype']}{entry['shape']}: {error}") from None


def to_table(found: InferResult) -> str:
    """The outputs as JSON: a list of rows for each."""
    return orjson.dumps({"predictions": {name: _list(array) for name, array in found.items()}}).decode()


def _list(array: Array) -> Any:
    if array.dtype == object:
        return (
            np.array([v.decode("utf-8", "backslashreplace") for v in array.flat], object).reshape(array.shape).tolist()
        )
    return array.astype(np.float64).tolist() if array.dtype.kind not in "biuf" else array.tolist()
