"""A function or a class that is bound as a model: what it is, and where its instances run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from naiad.binding.batching import BatchRule, batch_rule
from naiad.binding.signature import FunctionSignature, read_signature
from naiad.binding.tensor_types import TensorType
from naiad.errors import InvalidArgumentError

THREAD: Final = "thread"
PROCESS: Final = "process"


class FunctionKind(StrEnum):
    """How a function gives its results."""

    PLAIN = "plain"
    COROUTINE = "coroutine"
    GENERATOR = "generator"
    ASYNC_GENERATOR = "async generator"

    @property
    def streams(self) -> bool:
        """Whether a request gets any number of responses."""
        return self in (FunctionKind.GENERATOR, FunctionKind.ASYNC_GENERATOR)


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """What ``Server.bind`` was given.

    Attributes:
        model: the name of the model.
        target: a function, another callable, an object with ``predict``, or a class of such objects.
        instances: how many copies run side by side.
        workers: ``"thread"`` or ``"process"``, where they run.
        batching: how requests are put together; None for a function that runs one request at a time.
    """

    model: str
    target: Any
    signature: FunctionSignature
    kind: FunctionKind
    instances: int = 1
    workers: str = THREAD
    batching: BatchRule | None = None


def bind_function(
    model: str,
    target: Any,
    inputs: Mapping[str, TensorType] | None = None,
    outputs: Mapping[str, TensorType] | None = None,
    instances: int = 1,
    workers: str = THREAD,
) -> BoundFunction:
    """Describe a function that is bound as ``model``; the arguments are those of ``Server.bind``.

    Raises:
        InvalidArgumentError: it cannot be bound like this; the text says what to write.
    """
    if workers not in (THREAD, PROCESS):
        raise InvalidArgumentError(f"model '{model}': found workers={workers!r}, expected 'thread' or 'process'")
    if type(instances) is not int or instances < 1:
        raise InvalidArgumentError(f"model '{model}': found instances={instances!r}, expected a number from 1 on")
    if workers == THREAD and instances > 1 and _is_object(target):
        raise InvalidArgumentError(
            f"model '{model}': {instances} instances would share one object of {type(target).__name__}: bind the "
            "class, so that each instance makes an object of its own"
        )
    called = called_function(model, target)
    kind, rule = _kind(called), batch_rule(called)
    if rule is not None and kind.streams:
        raise InvalidArgumentError(
            f"model '{model}': a {kind} responds to one request at a time: leave @batch out, or return one result"
        )
    signature = read_signature(model, called, inputs, outputs)
    return BoundFunction(model, target, signature, kind, instances, workers, rule)


def called_function(model: str, target: Any) -> Callable[..., Any]:
    """The function of ``target`` that a request calls. A method of a class lacks its object.

    Raises:
        InvalidArgumentError: there is none.
    """
    if inspect.isclass(target):
        predict = getattr(target, "predict", None)
        if callable(predict):
            # Without ``self``, which is no input.
            return _without_self(predict)
    elif callable(getattr(target, "predict", None)):
        method: Callable[..., Any] = target.predict
        return method
    elif callable(target):
        function: Callable[..., Any] = target
        return function
    raise InvalidArgumentError(
        f"model '{model}': found {target!r}, expected a function, or a class with the method predict(self, ...) and, "
        "if it has something to load, setup(self, device)"
    )


def _without_self(method: Callable[..., Any]) -> Callable[..., Any]:
    bound: Callable[..., Any] = method.__get__(object()) if inspect.isfunction(method) else method
    return bound


def _is_object(target: Any) -> bool:
    return not inspect.isclass(target) and callable(getattr(target, "predict", None))


def _kind(function: Callable[..., Any]) -> FunctionKind:
    inner: Any = function
    while isinstance(inner, partial):
        inner = inner.func
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    if inspect.isasyncgenfunction(inner):
        return FunctionKind.ASYNC_GENERATOR
    if inspect.isgeneratorfunction(inner):
        return FunctionKind.GENERATOR
    return FunctionKind.COROUTINE if inspect.iscoroutinefunction(inner) else FunctionKind.PLAIN
