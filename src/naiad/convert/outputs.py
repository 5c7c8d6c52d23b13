"""What a model returned, as arrays by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from naiad.convert.errors import StepError

Arrays = dict[str, np.ndarray[Any, Any]]


def flat_tensors(value: Any) -> dict[str, Any]:
    """All tensors of a nested return value, by their keys and places.

    Raises:
        StepError: the value has none, or holds something that is no tensor.
    """
    found: dict[str, Any] = {}
    _collect(value, "", found)
    if not found:
        raise StepError("the model returns no tensor", "return a tensor, or a tuple or dictionary of tensors")
    return found


def as_arrays(value: Any, names: Sequence[str] = ()) -> Arrays:
    """A model's return value as arrays.

    Args:
        names: of the outputs, in their order; empty for their own, or ``output__0``, ``output__1``, ...

    Raises:
        StepError: as ``flat_tensors``; or there are not as many as names.
    """
    found = [(name, _array(tensor)) for name, tensor in flat_tensors(value).items()]
    if names:
        if len(names) != len(found):
            raise StepError(
                f"the model returns {len(found)} tensors, and {len(names)} were expected ({', '.join(names)})",
                "let it return the same tensors for every sample",
            )
        return {name: array for name, (_, array) in zip(names, found, strict=True)}
    return {name or "output__0": array for name, array in found}


def check_finite(arrays: Arrays, place: str) -> None:
    """Refuse NaN and infinity.

    Raises:
        StepError: an output has them.
    """
    for name, array in arrays.items():
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            bad = int((~np.isfinite(array)).sum())
            raise StepError(
                f"{place}: output '{name}' has {bad} of {array.size} elements that are NaN or infinity",
                "no format can be verified against it; check the weights and the samples",
            )


def _collect(value: Any, name: str, found: dict[str, Any]) -> None:
    if value is None:
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _collect(inner, f"{name}_{key}" if name else str(key), found)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _collect(inner, f"{name}_{index}" if name else f"output__{index}", found)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        found[name] = value
    else:
        place = f" at '{name}'" if name else ""
        raise StepError(
            f"the model returns a {type(value).__name__}{place}, which is no tensor",
            "return tensors alone: wrap the model in one that leaves the rest out",
        )


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()
    return np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor)
