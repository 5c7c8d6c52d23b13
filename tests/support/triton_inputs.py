"""Inputs of the official clients."""

from __future__ import annotations

from typing import Any

import numpy as np


def input_of(library: Any, name: str, values: np.ndarray, datatype: str = "FP32", **more: bool) -> Any:
    """An input with its data; ``library`` is one of tritonclient's modules, ``more`` is for ``set_data_from_numpy``."""
    found = library.InferInput(name, list(values.shape), datatype)
    found.set_data_from_numpy(values, **more)
    return found
