"""``@batch`` and ``@sample``: requests become keyword arguments, and what is returned becomes responses."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any

import numpy as np

from naiad.pytriton.decorators.context import get_model_config
from naiad.pytriton.decorators.wrapping import InferDecorator
from naiad.pytriton.exceptions import PyTritonValidationError
from naiad.pytriton.model_config.triton_model_config import TritonModelConfig

Array = np.ndarray[Any, Any]
InputNames = list[str]
InferenceRequest = dict[str, Array]
InferenceRequests = list[InferenceRequest] | tuple[InferenceRequest, ...]
InferenceResult = dict[str, Array]
InferenceResults = list[InferenceResult] | tuple[InferenceResult, ...]


def get_inference_request_batch_size(inference_request: Mapping[str, Array]) -> int:
    """The rows of a request: the first dimension of its first input."""
    return int(next(iter(inference_request.values())).shape[0])


def convert_output(
    outputs: Any, wrapped: Any = None, instance: Any = None, model_config: TritonModelConfig | None = None
) -> dict[str, Any]:
    """The outputs by name, of a function that returns a dictionary, or a list in the order of the model's outputs.

    Raises:
        PyTritonValidationError: it returned something else, or too many or too few.
    """
    if isinstance(outputs, dict):
        return outputs
    if not isinstance(outputs, list | tuple):
        raise PyTritonValidationError(f"Unsupported output type {type(outputs)}.")
    config = get_model_config(wrapped, instance) if model_config is None else model_config
    expected = config.outputs or ()
    if len(outputs) != len(expected):
        raise PyTritonValidationError(
            f"Outputs length different than config outputs length: the function returned {len(outputs)}, "
            f"model '{config.model_name}' has {len(expected)}"
        )
    return {spec.name: output for spec, output in zip(expected, outputs, strict=True)}


def sample(function: Any) -> InferDecorator:
    """Decorator: pass the inputs of the one request as keyword arguments, for models that do not batch."""
    return InferDecorator(function, sample_wrapper)


def batch(function: Any) -> InferDecorator:
    """Decorator: pass the inputs of all requests, joined along the batch dimension, as keyword arguments.

    The function returns a dictionary of arrays, or a list in the order of the model's outputs; or it yields them. It
    may be a coroutine, or an asynchronous generator.

    Raises:
        PyTritonValidationError: from a call: the requests have different inputs. ``@group_by_keys`` sorts them.
        ValueError: from a call: an output has another number of rows than the inputs.
    """
    return InferDecorator(function, batch_wrapper)


def sample_wrapper(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``@sample``."""
    requests, *rest = args
    kwargs.update(requests[0].items())
    return _convert_each(wrapped(*rest, **kwargs), lambda result: [convert_output(result, wrapped, instance)])


def batch_wrapper(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``@batch``."""
    requests, *rest = args
    names = requests[0].keys()
    if any(request.keys() != names for request in requests[1:]):
        raise PyTritonValidationError("Cannot batch requests with different set of inputs keys")
    inputs = {name: np.concatenate([request[name] for request in requests]) for name in names}
    rows = [get_inference_request_batch_size(request) for request in requests]
    result = wrapped(*rest, **{**kwargs, **inputs})
    return _convert_each(result, lambda one: _split(convert_output(one, wrapped, instance), rows))


def _split(outputs: Mapping[str, Any], rows: Sequence[int]) -> list[dict[str, Any]]:
    total = sum(rows)
    wrong = {name: np.shape(o) for name, o in outputs.items() if np.shape(o)[:1] != (total,)}
    if wrong:
        found = ", ".join(f"{name}: {shape}" for name, shape in wrong.items())
        raise ValueError(f"Received output tensors with different batch sizes: {found}. Expected batch size: {total}. ")
    ends = np.cumsum(rows).tolist()
    return [
        {name: output[end - count : end, ...] for name, output in outputs.items()}
        for end, count in zip(ends, rows, strict=True)
    ]


def _convert_each(result: Any, convert: Any) -> Any:
    """What a function made, converted: at once, or when it is awaited or iterated over."""
    if inspect.isgenerator(result):
        return (convert(one) for one in result)
    if inspect.isasyncgen(result):
        return _converted_stream(result, convert)
    if inspect.isawaitable(result):
        return _converted_later(result, convert)
    return convert(result)


async def _converted_later(result: Awaitable[Any], convert: Any) -> Any:
    return convert(await result)


async def _converted_stream(results: AsyncIterator[Any], convert: Any) -> AsyncIterator[Any]:
    async for one in results:
        yield convert(one)
