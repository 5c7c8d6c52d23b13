"""Keras models for tests. Import it after ``pytest.importorskip``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from naiad.backends.keras.framework import import_keras

keras = import_keras()


def save(path: Path, model: Any) -> None:
    """Write a model. Keras warns of one that is not built, and converts tensors in a way that numpy has deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save(path)


def predicted(model: Any, argument: Any) -> Any:
    """What Keras itself computes. Its own way from torch to numpy warns in a way that threads cannot silence."""
    with torch.no_grad():
        return model(argument, training=False).numpy()


def tanh_network(seed: int, hidden: int) -> Any:
    """A layer of ``hidden`` units between the input X ([-1, 4]) and the output Y ([-1, 3])."""
    random = np.random.default_rng(seed)
    x = keras.Input((4,), name="X")
    first = keras.layers.Dense(hidden, activation="tanh", use_bias=False)
    second = keras.layers.Dense(3, use_bias=False, name="Y")
    model = keras.Model(x, second(first(x)))
    first.set_weights([random.standard_normal((4, hidden), np.float32)])
    second.set_weights([random.standard_normal((hidden, 3), np.float32)])
    return model
