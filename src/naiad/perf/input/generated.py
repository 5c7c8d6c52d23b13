"""Tensors that are made up: random ones from a seed, and zeros."""

from __future__ import annotations

import string
from typing import Any, Final

import numpy as np

from naiad.perf.input.element_bytes import datatype_of, element_count, encode_bytes_elements, shape_text
from naiad.perf.input.error import PerfInputError
from naiad.perf.input.memory_limit import check_room
from naiad.perf.input.shapes import default_shape, dynamic_shape_error
from naiad.perf.settings import InputSettings
from naiad.perf.steps import ModelDescription, Step, TensorDescription, TensorValue
from naiad.tensor.dtypes import DataType

_CHARACTERS: Final = np.frombuffer((string.ascii_letters + string.digits + " .?!").encode(), np.uint8)


def generated_step(settings: InputSettings, model: ModelDescription, index: int = 0) -> Step:
    """One step of made-up tensors, without the batch dimension.

    Args:
        index: the stream that it is for. Streams hold different random data; the same seed makes the same data.

    Raises:
        PerfInputError: a shape is unknown, or an input needs data that have a meaning.
    """
    random = np.random.default_rng([settings.seed, index])
    return Step(tuple(_generated(tensor, settings, random) for tensor in model.inputs))


def _generated(tensor: TensorDescription, settings: InputSettings, random: np.random.Generator) -> TensorValue:
    if tensor.is_shape_tensor:
        raise PerfInputError(
            f"can not generate data for shape tensor '{tensor.name}', user-provided data is needed: give --input-data "
            "with a directory or a JSON file"
        )
    shape = default_shape(tensor, settings.shapes)
    if shape is None:
        raise dynamic_shape_error(tensor)
    datatype, count = datatype_of(tensor), element_count(shape)
    check_room(
        count * _element_bytes(datatype, settings) * settings.batch_size,
        f"the input {tensor.name} of shape {shape_text(shape)} with -b {settings.batch_size} has",
        "make --shape or -b smaller",
    )
    if datatype.is_bytes:
        # As in the reference, zeros are a matter of numbers only.
        return TensorValue(tensor.name, tensor.datatype, shape, _strings(count, settings, random))
    if settings.source == "zero":
        return TensorValue(tensor.name, tensor.datatype, shape, bytes(count * datatype.itemsize))
    return TensorValue(tensor.name, tensor.datatype, shape, _numbers(datatype, count, random))


def _element_bytes(datatype: DataType, settings: InputSettings) -> int:
    if not datatype.is_bytes:
        return datatype.itemsize
    return 4 + (len(settings.string_data.encode()) or settings.string_length)


def _strings(count: int, settings: InputSettings, random: np.random.Generator) -> bytes:
    if settings.string_data:
        return encode_bytes_elements([settings.string_data.encode()]) * count
    length = settings.string_length
    text = _CHARACTERS[random.integers(0, len(_CHARACTERS), count * length)]
    rows = np.empty((count, 4 + length), np.uint8)
    rows[:, :4] = np.frombuffer(length.to_bytes(4, "little"), np.uint8)
    rows[:, 4:] = text.reshape(count, length)
    return rows.tobytes()


def _numbers(datatype: DataType, count: int, random: np.random.Generator) -> bytes:
    """Integers over the whole range of their type; floats from 0 to 1: random bits would make NaN and infinity."""
    kind = datatype.wire
    if kind == "BOOL":
        found: np.ndarray[Any, Any] = random.integers(0, 2, count, np.uint8)
    elif kind in ("FP16", "BF16", "FP32", "FP64"):
        found = random.random(count).astype(datatype.numpy)
    else:
        return random.bytes(count * datatype.itemsize)
    return found.tobytes()
