"""Inputs and outputs: names, datatypes, dims, reshape and formats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from naiad.config.messages import enum_name
from naiad.config.problems import Violation
from naiad.tensor.dtypes import BY_CONFIG

_DIMENSION = "dimension must be integer >= 1, or -1 to indicate a variable-size dimension"
_RESHAPE_DIMENSIONS = "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension"
_EMPTY_RESHAPE = "cannot have empty reshape for non-batching model as scalar tensors are not supported"
_FORMAT_RANK = 3


def violations(config: Any) -> Iterator[Violation]:
    """Rules of ``input`` and ``output``."""
    yield from _tensors(config, "input")
    yield from _tensors(config, "output")


def _tensors(config: Any, direction: str) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, tensor in enumerate(getattr(config, direction)):
        path = f"{direction}[{index}]"
        yield from _tensor(config, tensor, path, f"model {direction} ")
        if tensor.name and tensor.name in seen:
            message = f"model {direction} '{tensor.name}' is specified more than once for {config.name}"
            yield Violation(f"{path}.name", message)
        seen.add(tensor.name)


def _tensor(config: Any, tensor: Any, path: str, prefix: str) -> Iterator[Violation]:
    suffix = f" for {config.name}"
    shown = f"{prefix}'{tensor.name}' "
    if not tensor.name:
        yield Violation(path, f"{prefix}must specify 'name'{suffix}")
    if enum_name(tensor, "data_type") not in BY_CONFIG:
        yield Violation(f"{path}.data_type", f"{shown}must specify 'data_type'{suffix}")
    if not tensor.dims:
        yield Violation(path, f"{shown}must specify 'dims'{suffix}")
    for position, dim in enumerate(tensor.dims):
        if not _is_dim(dim):
            yield Violation(f"{path}.dims[{position}]", f"{shown}{_DIMENSION}{suffix}, found {dim}")
    for part, message in _reshape(tensor, config.max_batch_size):
        found = f", found dims {list(tensor.dims)} and reshape {list(tensor.reshape.shape)}"
        yield Violation(f"{path}.reshape{part}", f"{shown}{message}{suffix}{found}")
    yield from _format(config, tensor, path)


def _is_dim(dim: int) -> bool:
    return dim >= 1 or dim == -1


def _reshape(tensor: Any, max_batch_size: int) -> Iterator[tuple[str, str]]:
    if not tensor.HasField("reshape"):
        return
    dims, shape = list(tensor.dims), list(tensor.reshape.shape)
    if not shape and max_batch_size == 0:
        yield "", _EMPTY_RESHAPE
        return
    wrong = [position for position, dim in enumerate(shape) if not _is_dim(dim)]
    yield from ((f".shape[{position}]", _RESHAPE_DIMENSIONS) for position in wrong)
    if not wrong and all(map(_is_dim, dims)):
        yield from (("", message) for message in _reshape_sizes(dims, shape))


def _reshape_sizes(dims: Sequence[int], shape: Sequence[int]) -> Iterator[str]:
    given, wanted = _fixed_sizes(dims), _fixed_sizes(shape)
    if len(given) != len(wanted) and 1 not in (len(given), len(wanted)):
        yield "has different number of variable-size dimensions for dims and reshape"
    elif given != wanted:
        yield "has different size for dims and reshape"


def _fixed_sizes(dims: Sequence[int]) -> list[int]:
    """Element counts of the runs of fixed dims before, between and after the variable ones."""
    runs: list[list[int]] = [[]]
    for dim in dims:
        if dim == -1:
            runs.append([])
        else:
            runs[-1].append(dim)
    return [math.prod(run) for run in runs]


def _format(config: Any, tensor: Any, path: str) -> Iterator[Violation]:
    is_tensorrt = "tensorrt" in (config.backend, config.platform.partition("_")[0])
    has_format = "format" in tensor.DESCRIPTOR.fields_by_name and tensor.format != 0
    if has_format and len(tensor.dims) != _FORMAT_RANK:
        yield Violation(f"{path}.format", f"model input NHWC/NCHW require 3 dims for {config.name}")
    if tensor.is_shape_tensor and not is_tensorrt:
        message = f"shape tensors are only supported for TensorRT platform for {config.name}"
        yield Violation(f"{path}.is_shape_tensor", message)
    if tensor.is_non_linear_format_io and not is_tensorrt:
        message = f"Non-linear IO format is only supported for the TensorRT platform for {config.name}"
        yield Violation(f"{path}.is_non_linear_format_io", message)
