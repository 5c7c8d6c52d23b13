"""``@first_value``, ``@fill_optionals`` and ``@pad_batch``: inputs that a function gets otherwise than callers send
them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

import numpy as np

from naiad.pytriton.decorators.batching import Array, get_inference_request_batch_size
from naiad.pytriton.decorators.context import get_model_config
from naiad.pytriton.decorators.grouping import SPECIAL_KEYS
from naiad.pytriton.decorators.wrapping import InferDecorator, without
from naiad.pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError
from naiad.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

# first_value


def first_value(*keys: str, squeeze_single_values: bool = True, strict: bool = True) -> Callable[[Any], InferDecorator]:
    """Decorator: pass the first row of some inputs in place of all rows.

    Args:
        keys: the inputs; others may be absent.
        squeeze_single_values: pass a scalar for a row with one element.
        strict: check that all rows are the same.

    Raises:
        PyTritonBadParameterError: a key is none of an input.
        PyTritonRuntimeError: from a call: rows differ, or the model does not batch.
    """
    if wrong := [key for key in keys if key in SPECIAL_KEYS]:
        raise PyTritonBadParameterError(
            f"The keys {', '.join(wrong)} are not allowed as keys for @first_value wrapper. "
            f"The set of not allowed keys are {', '.join(SPECIAL_KEYS)}"
        )
    return partial(_decorate_first, keys, squeeze_single_values, strict)


def _decorate_first(keys: tuple[str, ...], squeezes: bool, strict: bool, function: Any) -> InferDecorator:
    return InferDecorator(function, partial(_first_value, keys, squeezes, strict))


def _first_value(
    keys: tuple[str, ...],
    squeezes: bool,
    strict: bool,
    wrapped: Any,
    instance: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if not get_model_config(wrapped, instance).batching:
        raise PyTritonRuntimeError("The @first_value decorator can only be used with models that support batching.")
    # Below ``@batch`` the inputs are keyword arguments, else they are in requests.
    places = [kwargs] if without(SPECIAL_KEYS, kwargs) else list(args[0])
    for inputs in places:
        _take_first(inputs, keys, squeezes, strict)
    return wrapped(*args, **kwargs)


def _take_first(inputs: MutableMapping[str, Any], keys: tuple[str, ...], squeezes: bool, strict: bool) -> None:
    for name in keys:
        if name not in inputs:
            continue
        values = inputs[name]
        if strict and not _all_same(values):
            raise PyTritonRuntimeError(
                f"The values on the {name!r} input are not equal. To proceed, either disable strict mode in "
                "@first_value wrapper or ensure that the values always are consistent. "
                f"The current values of {name!r} are {values!r}."
            )
        first = values[0]
        inputs[name] = first.reshape(())[()] if squeezes and not np.isscalar(first) and first.size == 1 else first


def _all_same(values: Array) -> bool:
    first = values[:1]
    equal_nan = values.dtype.kind in "fc"
    return bool(np.array_equal(values, np.broadcast_to(first, values.shape), equal_nan=equal_nan))


# fill_optionals


def fill_optionals(**defaults: Array) -> Callable[[Any], InferDecorator]:
    """Decorator, used above ``@batch``: give inputs that a request lacks a default value.

    Args:
        defaults: arrays without the batch dimension, by input.

    Raises:
        PyTritonBadParameterError: from a call: a default does not fit an input of the model.
    """
    return partial(_decorate_filled, defaults)


def _decorate_filled(defaults: Mapping[str, Array], function: Any) -> InferDecorator:
    return InferDecorator(function, partial(_fill_optionals, defaults))


def _fill_optionals(
    defaults: Mapping[str, Any], wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    config = get_model_config(wrapped, instance)
    _check_defaults(defaults, config)
    (requests,) = args
    for request in requests:
        rows = get_inference_request_batch_size(request) if config.batching else None
        for name, default in defaults.items():
            if name not in request:
                request[name] = default if rows is None else np.repeat(default[np.newaxis], rows, axis=0)
    return wrapped(*args, **kwargs)


def _check_defaults(defaults: Mapping[str, Any], config: TritonModelConfig) -> None:
    inputs = {spec.name: spec for spec in config.inputs or ()}
    if unknown := sorted(set(defaults) - set(inputs)):
        raise PyTritonBadParameterError(f"Could not found {', '.join(unknown)} inputs")
    if others := [f"{name}={value}" for name, value in defaults.items() if not isinstance(value, np.ndarray)]:
        raise PyTritonBadParameterError(f"Could not use {', '.join(others)} defaults as they are not NumPy arrays")
    wrong = [
        f"{name}: dtype={value.dtype} expected_dtype={inputs[name].dtype}"
        for name, value in defaults.items()
        if value.dtype != inputs[name].dtype
    ]
    if wrong:
        raise PyTritonBadParameterError(
            f"Could not use {', '.join(wrong)} defaults as they have different than input signature dtypes"
        )
    misshapen = [
        f"{name}: shape={value.shape} expected_shape={inputs[name].shape}"
        for name, value in defaults.items()
        if not _fits(value, inputs[name])
    ]
    if misshapen:
        raise PyTritonBadParameterError(
            f"Could not use {', '.join(misshapen)} defaults as they have different than input signature shapes"
        )


def _fits(value: Array, spec: TensorSpec) -> bool:
    shape = tuple(spec.shape)
    return len(value.shape) == len(shape) and all(e in (-1, h) for h, e in zip(value.shape, shape, strict=True))


# pad_batch


def pad_batch(function: Any) -> InferDecorator:
    """Decorator, used below ``@batch``: repeat the last row until the batch has a preferred size, or the largest."""
    return InferDecorator(function, _pad_batch)


def _pad_batch(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    inputs = without(SPECIAL_KEYS, kwargs)
    rows = get_inference_request_batch_size(inputs)
    config = get_model_config(wrapped, instance)
    preferred = (config.batcher and config.batcher.preferred_batch_size) or ()
    sizes = [*sorted(preferred), config.max_batch_size]
    missing = max(0, sizes[min(bisect_left(sizes, rows), len(sizes) - 1)] - rows)
    for name, array in inputs.items():
        kwargs[name] = np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) if missing else array
    return wrapped(*args, **kwargs)
