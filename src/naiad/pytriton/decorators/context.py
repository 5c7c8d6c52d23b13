"""What decorators know of the model that a function is bound to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from naiad.pytriton.constants import TRITON_CONTEXT_FIELD_NAME
from naiad.pytriton.decorators.wrapping import CONTEXT_ATTRIBUTE, InferDecorator, chain
from naiad.pytriton.exceptions import PyTritonValidationError
from naiad.pytriton.model_config.triton_model_config import TritonModelConfig


class ModelConfigDict(MutableMapping[Callable[..., Any], TritonModelConfig]):
    """The configurations of models by their functions. A decorated function has that of what it decorates."""

    def __init__(self) -> None:
        self._data: dict[str, TritonModelConfig] = {}
        self._keys: dict[str, Callable[..., Any]] = {}

    def __getitem__(self, infer_callable: Callable[..., Any]) -> TritonModelConfig:
        return self._data[self._get_model_config_key(infer_callable)]

    def __setitem__(self, infer_callable: Callable[..., Any], item: TritonModelConfig) -> None:
        key = self._get_model_config_key(infer_callable)
        self._keys[key] = infer_callable
        self._data[key] = item

    def __delitem__(self, infer_callable: Callable[..., Any]) -> None:
        key = self._get_model_config_key(infer_callable)
        del self._data[key], self._keys[key]

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(list(self._keys.values()))

    @staticmethod
    def _get_model_config_key(infer_callable: Callable[..., Any]) -> str:
        # Text, as a bound method is another object each time that it is looked up.
        while isinstance(infer_callable, InferDecorator):
            infer_callable = infer_callable.__wrapped__
        if inspect.ismethod(infer_callable) and infer_callable.__name__ == "__call__":
            return str(infer_callable.__self__)
        return str(infer_callable)


@dataclass
class TritonContext:
    """The models of a server: their configurations by their functions."""

    model_configs: ModelConfigDict = field(default_factory=ModelConfigDict)


def inject_triton_context(context: TritonContext, function: Any) -> Any:
    """Let the decorators of a function find the context; returns the function."""
    owner = getattr(function, "__self__", None)
    for found in chain(function) if owner is None else (owner,):
        with suppress(AttributeError, TypeError):
            setattr(found, CONTEXT_ATTRIBUTE, context)
    return function


def get_triton_context(wrapped: Any, instance: Any) -> TritonContext:
    """The context of a function, or of a method of ``instance``.

    Raises:
        PyTritonValidationError: it is not bound.
    """
    found: TritonContext | None = getattr(wrapped if instance is None else instance, CONTEXT_ATTRIBUTE, None)
    if found is None:
        raise PyTritonValidationError("Wrapped function or object must bound with triton to get  __triton_context__")
    return found


def get_model_config(wrapped: Any, instance: Any) -> TritonModelConfig:
    """The configuration of the model that a function is bound to; errors as ``get_triton_context``."""
    return get_triton_context(wrapped, instance).model_configs[wrapped]


def triton_context(function: Any) -> InferDecorator:
    """Decorator: pass the context as the argument ``triton_context``."""
    return InferDecorator(function, _with_context)


def _with_context(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kwargs[TRITON_CONTEXT_FIELD_NAME] = get_triton_context(wrapped, instance)
    return wrapped(*args, **kwargs)
