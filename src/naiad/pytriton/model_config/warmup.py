"""Warm-up requests: the arrays that a function runs before it serves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from naiad.pytriton.exceptions import PyTritonBadParameterError
from naiad.pytriton.model_config.common import ModelWarmup, WarmupInput
from naiad.pytriton.model_config.datatypes import BYTES_TYPES

Array = np.ndarray[Any, Any]
_LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", "S1")
_MOST: Final = 100
_NARROW_BITS: Final = 16


def warmup_inputs(warmups: Sequence[ModelWarmup], batching: bool) -> Iterator[dict[str, Array]]:
    """The inputs of each warm-up request.

    Raises:
        PyTritonBadParameterError: an input does not say what it holds, or its file does not fit.
    """
    for warmup in warmups:
        for _ in range(warmup.count):
            rows = (warmup.batch_size,) if batching else ()
            yield {name: _data(name, given, rows) for name, given in warmup.inputs.items()}


def _data(name: str, given: WarmupInput, rows: tuple[int, ...]) -> Array:
    shape = (*rows, *given.shape)
    is_bytes = any(given.dtype is known for known in BYTES_TYPES)
    if given.input_data_file:
        return _from_file(name, given, shape)
    if given.zero_data:
        return np.full(shape, b"", object) if is_bytes else np.zeros(shape, given.dtype)
    if given.random_data:
        return _strings(shape) if is_bytes else _numbers(np.dtype(given.dtype), shape)
    raise PyTritonBadParameterError(
        f"One of 'zero_data', 'random_data', or 'input_data_file' must be provided for warmup input '{name}'."
    )


def _from_file(name: str, given: WarmupInput, shape: tuple[int, ...]) -> Array:
    found = np.load(str(given.input_data_file))
    if found.shape == shape[1:]:
        found = np.broadcast_to(found, shape)
    elif found.ndim == len(shape) and found.shape[1:] == shape[1:] and len(found):
        found = np.resize(found, shape)
    if found.shape != shape:
        raise PyTritonBadParameterError(
            f"the file '{given.input_data_file}' of warmup input '{name}' has the shape {found.shape}, expected {shape}"
        )
    made: Array = found.astype(given.dtype)
    return made


def _numbers(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    generator = np.random.default_rng()
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        wide = limits.bits > _NARROW_BITS
        return generator.integers(0 if wide else limits.min, _MOST if wide else limits.max, shape).astype(dtype)
    return generator.random(shape).astype(dtype)


def _strings(shape: tuple[int, ...]) -> Array:
    generator = np.random.default_rng()
    made = np.empty(shape, object)
    flat = made.reshape(-1)
    for index in range(flat.size):
        flat[index] = b"".join(generator.choice(_LETTERS, generator.integers(8, 33)).tolist())
    return made
