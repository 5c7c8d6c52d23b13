"""The configuration of a converted model: its tensors, its batching and its warm-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from naiad.config.export import config_pbtxt
from naiad.config.messages import message_class
from naiad.convert.formats import TargetFormat
from naiad.convert.signature import identifier

_TYPES: Final = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "str": "TYPE_STRING",
}
WARMUP: Final = "warmup"
"""The folder with the samples of the warm-up, in a model's folder."""


@dataclass(frozen=True, slots=True)
class Batching:
    """What was measured.

    Attributes:
        preferred: the batch sizes worth waiting for.
        delay_us: how long a request waits for others.
    """

    max_batch_size: int = 0
    preferred: tuple[int, ...] = ()
    delay_us: int = 0


@dataclass(frozen=True, slots=True)
class ConfiguredTensor:
    """One input or output under the name that the file has for it; ``shape`` with the batch."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def configured(names: Sequence[str], tensors: Sequence[Mapping[str, Any]]) -> tuple[ConfiguredTensor, ...]:
    """Tensors of a signature, or as verification saw them, under a file's names."""
    return tuple(ConfiguredTensor(n, t["dtype"], tuple(t["shape"])) for n, t in zip(names, tensors, strict=True))


def config_text(
    name: str,
    target: TargetFormat,
    inputs: Sequence[ConfiguredTensor],
    outputs: Sequence[ConfiguredTensor],
    batching: Batching,
    *,
    labels: str = "",
    warmup: Mapping[str, tuple[int, ...]] | None = None,
    parameters: Mapping[str, str] | None = None,
) -> str:
    """The text of a config.pbtxt.

    Args:
        labels: the file with the labels of the first output; empty for none.
        warmup: the shapes of the warm-up's tensors by their names; None for none.
    """
    config = message_class("ModelConfig")()
    config.name, config.platform, config.backend = name, target.platform, target.backend
    config.max_batch_size = batching.max_batch_size
    cut = 1 if batching.max_batch_size else 0
    for field, tensors in ((config.input, inputs), (config.output, outputs)):
        for tensor in tensors:
            fill_tensor(field.add(), tensor.name, tensor.dtype, tensor.shape[cut:])
    if labels:
        config.output[0].label_filename = labels
    if batching.max_batch_size > 1:
        config.dynamic_batching.SetInParent()
        config.dynamic_batching.preferred_batch_size.extend(batching.preferred)
        config.dynamic_batching.max_queue_delay_microseconds = batching.delay_us
    if warmup:
        _fill_warmup(config, warmup, cut)
    for key, value in _parameters(target, parameters).items():
        config.parameters[key].string_value = value
    return config_pbtxt(config)


def fill_tensor(entry: Any, name: str, dtype: str, dims: tuple[int, ...]) -> None:
    """Fill an input or output of a configuration; ``dims`` is without the batch, ``dtype`` numpy's name or "str"."""
    entry.name = name
    kind = _TYPES.get(dtype, "TYPE_FP32")
    entry.data_type = type(entry).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name[kind].number
    # A row without axes of its own has one of size 1.
    entry.dims.extend(dims or (1,))
    if not dims:
        entry.reshape.SetInParent()


def _fill_warmup(config: Any, shapes: Mapping[str, tuple[int, ...]], cut: int) -> None:
    sample = config.model_warmup.add()
    sample.name, sample.batch_size = "first sample", 1 if cut else 0
    for entry in config.input:
        value = sample.inputs[entry.name]
        value.data_type = entry.data_type
        value.dims.extend(shapes[entry.name] or (1,))
        value.input_data_file = identifier(entry.name)


def _parameters(target: TargetFormat, given: Mapping[str, str] | None) -> dict[str, str]:
    own = dict(given or {})
    if target.name == "treelite":
        own.setdefault("model_type", "treelite_checkpoint")
    return own


def warmup_arrays(
    sample: Mapping[str, np.ndarray[Any, Any]], inputs: Sequence[ConfiguredTensor], batching: Batching
) -> dict[str, np.ndarray[Any, Any]]:
    """One row of a sample, or all of it without batching, under the file's names."""
    rows = {t.name: a for t, a in zip(inputs, sample.values(), strict=True)}
    return {name: array[0] for name, array in rows.items()} if batching.max_batch_size else rows
