"""Decorators of functions and methods that see the object which a method belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

CONTEXT_ATTRIBUTE: Final = "__triton_context__"
"""The attribute of a function, or of the object of a method, that has the context of its server."""

Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""Gets what is decorated, the object of a method (None for a function), and the arguments of a call."""


class InferDecorator:
    """A decorated function or method.

    It can be sent to another process, which objects of ``wrapt`` cannot.

    Attributes:
        __wrapped__: what is decorated.
        wrapper: called in its place.
    """

    def __init__(self, wrapped: Any, wrapper: Wrapper, instance: Any = None) -> None:
        self.__wrapped__ = wrapped
        self.wrapper = wrapper
        self._instance = instance
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(wrapped, name):
                setattr(self, name, getattr(wrapped, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        wrapped = self.__wrapped__
        instance = self._instance if self._instance is not None else getattr(wrapped, "__self__", None)
        return self.wrapper(wrapped, instance, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None or not hasattr(self.__wrapped__, "__get__"):
            return self
        return InferDecorator(self.__wrapped__.__get__(instance, owner), self.wrapper, instance)

    def __getattr__(self, name: str) -> Any:
        if name in ("__wrapped__", "wrapper", "_instance", "__getstate__", "__setstate__"):
            # Not there yet while the object is being made from a pickle.
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name == CONTEXT_ATTRIBUTE:
            # What is decorated needs it too.
            with suppress(AttributeError, TypeError):
                setattr(self.__wrapped__, name, value)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> tuple[Any, ...]:
        return InferDecorator, (self.__wrapped__, self.wrapper, self._instance)


def chain(function: Any) -> Iterator[Any]:
    """A function, what it decorates, and so on."""
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


def wrappers(function: Any) -> list[Wrapper]:
    """The wrappers of a decorated function, from the outermost on."""
    return [f.wrapper for f in chain(function) if isinstance(f, InferDecorator)]


def without(names: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Some keyword arguments without others."""
    return {name: value for name, value in given.items() if name not in names}
