"""``@group_by_keys``, ``@group_by_values`` and ``ConstantPadder``: batches of what belongs together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from naiad.pytriton.decorators.batching import (
    Array,
    InferenceResult,
    InferenceResults,
    batch_wrapper,
    get_inference_request_batch_size,
)
from naiad.pytriton.decorators.wrapping import InferDecorator, without, wrappers
from naiad.pytriton.exceptions import PyTritonRuntimeError

SPECIAL_KEYS = ("__triton_context__",)
PadFunction = Callable[[InferenceResults], InferenceResults]


def group_by_keys(function: Any) -> InferDecorator:
    """Decorator: call the function once for all requests with the same inputs, since others cannot be joined."""
    return InferDecorator(function, _by_keys)


def _by_keys(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    requests, *rest = args
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, request in enumerate(requests):
        groups.setdefault(tuple(sorted(request.keys())), []).append(index)
    found: list[Any] = [None] * len(requests)
    for _, indices in sorted(groups.items()):
        results = wrapped([requests[index] for index in indices], *rest, **kwargs)
        for index, result in zip(indices, results, strict=True):
            found[index] = result
    return found


def group_by_values(*keys: str, pad_fn: PadFunction | None = None) -> Callable[[Any], InferDecorator]:
    """Decorator, used below ``@batch``: call the function once for all rows with the same values of some inputs.

    Args:
        keys: the inputs.
        pad_fn: makes the results of all calls the same size, such as ``ConstantPadder()``.
    """
    return partial(_decorate_by_values, keys, pad_fn)


def _decorate_by_values(keys: tuple[str, ...], pad_fn: PadFunction | None, function: Any) -> InferDecorator:
    return InferDecorator(function, partial(_by_values, keys, pad_fn))


def _by_values(
    keys: tuple[str, ...],
    pad_fn: PadFunction | None,
    wrapped: Any,
    instance: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> InferenceResult:
    if batch_wrapper in wrappers(wrapped):
        raise PyTritonRuntimeError("The @group_by_values decorator must be used after the @batch decorator.")
    inputs = without(SPECIAL_KEYS, kwargs)
    rest = {name: value for name, value in kwargs.items() if name in SPECIAL_KEYS}
    rows = get_inference_request_batch_size(inputs)
    groups = list(_groups(keys, inputs, rows))
    results = [wrapped(*args, **{n: v[indices, ...] for n, v in inputs.items()}, **rest) for indices in groups]
    if pad_fn is not None:
        results = list(pad_fn(results))
    return _joined(groups, results, rows)


def _groups(keys: tuple[str, ...], inputs: Mapping[str, Array], rows: int) -> Iterator[list[int]]:
    """The rows of each group, in the order of their values."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in range(rows):
        groups.setdefault(tuple(_value(inputs[key][row]) for key in keys), []).append(row)
    for key in sorted(groups):
        yield groups[key]


def _value(value: Any) -> Hashable:
    if not isinstance(value, np.ndarray):
        return value  # type: ignore[no-any-return]
    if value.dtype.hasobject or value.dtype.kind == "S":
        return tuple(value.reshape(-1).tolist())
    return value.tobytes()


def _joined(groups: Sequence[list[int]], results: Sequence[Mapping[str, Array]], rows: int) -> InferenceResult:
    joined = {name: np.zeros((rows, *data.shape[1:]), data.dtype) for name, data in results[0].items()}
    for indices, result in zip(groups, results, strict=True):
        for name, data in result.items():
            joined[name][indices, ...] = data
    return joined


class ConstantPadder:
    """Makes the results of several calls the same size.

    Args:
        pad_value: what is added behind them; strings are padded with empty ones.
    """

    def __init__(self, pad_value: Any = 0) -> None:
        self.pad_value = pad_value

    def __call__(self, batches_list: InferenceResults) -> InferenceResults:
        """The padded arrays.

        Raises:
            PyTritonRuntimeError: arrays of one name differ in their datatype.
        """
        made: list[InferenceResult] = [{} for _ in batches_list]
        for name in dict.fromkeys(name for batch in batches_list for name in batch):
            arrays = [batch[name] for batch in batches_list if name in batch]
            shape, dtype = _largest(arrays), _common(arrays)
            for batch, padded in zip(batches_list, made, strict=True):
                if name in batch:
                    padded[name] = self._padded(batch[name], shape, dtype)
        return made

    def _padded(self, array: Array, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        value = b"" if dtype.kind in "SUO" else self.pad_value
        widths = [(0, 0), *((0, full - size) for size, full in zip(array.shape[1:], shape, strict=True))]
        padded: Array = np.pad(array, widths, mode="constant", constant_values=value).astype(dtype)
        return padded


def _largest(arrays: Sequence[Array]) -> list[int]:
    return [max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True)]


def _common(arrays: Sequence[Array]) -> np.dtype[Any]:
    dtypes = {array.dtype for array in arrays}
    first: np.dtype[Any] = arrays[0].dtype
    if len(dtypes) == 1:
        return first
    if first.kind in "SU" and all(dtype.kind == first.kind for dtype in dtypes):
        largest: np.dtype[Any] = max(dtypes, key=lambda dtype: int(dtype.itemsize))
        return largest
    raise PyTritonRuntimeError("All input arrays for given input name must have the same dtype.")
