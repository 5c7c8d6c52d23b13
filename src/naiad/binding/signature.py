"""The inputs and outputs of a bound function: from its type hints, from ``inputs=`` and ``outputs=``, or by default."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

from naiad.binding.tensor_types import BOOL, BYTES, FP32, FP64, INT64, TensorType
from naiad.errors import InvalidArgumentError

DEFAULT_OUTPUT: Final = "output"
SCALARS: Final[Mapping[type, TensorType]] = {
    bool: BOOL[1],
    int: INT64[1],
    float: FP64[1],
    str: BYTES[1],
    bytes: BYTES[1],
}
"""The tensor of one element that stands for a plain Python value."""
HOW_TO: Final = "write `x: Annotated[np.ndarray, naiad.FP32[-1, 16]]`, or bind(..., inputs={'x': naiad.FP32[-1, 16]})"

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_TAKEN: Final = (*_NAMED, inspect.Parameter.POSITIONAL_ONLY)


@dataclass(frozen=True, slots=True)
class BoundInput:
    """An input: its tensor type, the Python type that the function gets in its place (None: an array), and whether a
    request may lack it."""

    tensor: TensorType
    scalar: type | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """The tensors of a bound function.

    Attributes:
        by_name: whether the function takes its inputs as keyword arguments; else in the order of ``inputs``.
        assumed: the names of the tensors whose type nobody stated.
    """

    inputs: Mapping[str, BoundInput]
    outputs: Mapping[str, TensorType]
    by_name: bool = True
    assumed: tuple[str, ...] = ()


def read_signature(
    model: str,
    function: Callable[..., Any],
    inputs: Mapping[str, TensorType] | None,
    outputs: Mapping[str, TensorType] | None,
) -> FunctionSignature:
    """The signature of ``function``, which is bound as ``model``.

    Args:
        inputs: the inputs by name; None for those of the parameters.
        outputs: the outputs by name; None for those of the return annotation.

    Raises:
        InvalidArgumentError: there is no input, or a type is none that a tensor can have.
    """
    parameters = _parameters(model, function, inputs)
    hints = _hints(function)
    taken = [p for p in parameters.values() if p.kind in _TAKEN]
    if inputs is None:
        found = {p.name: _input(model, p, hints) for p in taken}
        assumed = [p.name for p in taken if p.name not in hints]
    else:
        optional = {p.name for p in taken if p.default is not inspect.Parameter.empty}
        found = {n: BoundInput(_stated(model, n, t), None, n in optional) for n, t in inputs.items()}
        assumed = []
    if not found:
        raise InvalidArgumentError(f"model '{model}': {_name(function)} takes no input: {HOW_TO}")
    if outputs is not None:
        made = {name: _stated(model, name, given) for name, given in outputs.items()}
    elif "return" in hints:
        made = _returned(model, hints["return"])
    else:
        # What most functions do: the datatype and the rank of what they are given.
        made = {DEFAULT_OUTPUT: next(iter(found.values())).tensor.any_size}
        assumed.append(DEFAULT_OUTPUT)
    if not made:
        raise InvalidArgumentError(f"model '{model}': found no output, expected outputs={{'y': naiad.FP32[-1]}}")
    return FunctionSignature(found, made, _takes_names(parameters, found), tuple(assumed))


def _parameters(
    model: str, function: Callable[..., Any], inputs: Mapping[str, TensorType] | None
) -> Mapping[str, inspect.Parameter]:
    found: Mapping[str, inspect.Parameter]
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        found = {}
    # What is written in C, such as the functions of numpy, has parameters that are no tensors, or says nothing of them.
    if inputs is None and not _is_python(function):
        raise InvalidArgumentError(
            f"model '{model}': {_name(function)} is no Python function, so its parameters do not say which inputs it "
            "has: write bind(..., inputs={'x': naiad.FP32[-1]})"
        )
    return found


def _is_python(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    called = function if inspect.isroutine(function) else type(function).__call__
    return inspect.isfunction(called) or inspect.ismethod(called)


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "func", type(function).__call__)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError):
        # A hint that names what is not there at run time says nothing.
        return {}


def _takes_names(parameters: Mapping[str, inspect.Parameter], inputs: Mapping[str, BoundInput]) -> bool:
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return True
    return all(name in parameters and parameters[name].kind in _NAMED for name in inputs)


def _input(model: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> BoundInput:
    optional = parameter.default is not inspect.Parameter.empty
    if parameter.name not in hints:
        return BoundInput(FP32, None, optional)
    hint = _without_none(hints[parameter.name])
    if hint in SCALARS:
        return BoundInput(SCALARS[hint], hint, optional)
    return BoundInput(_tensor_type(model, f"parameter '{parameter.name}'", hint), None, optional)


def _without_none(hint: Any) -> Any:
    """``X`` of ``X | None``: whether a request may lack an input is for the parameter's default to say."""
    left = [a for a in typing.get_args(hint) if a is not type(None)]
    return left[0] if len(left) == 1 and type(None) in typing.get_args(hint) else hint


def _returned(model: str, hint: Any) -> dict[str, TensorType]:
    """The outputs of a return annotation; those of what a generator yields."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if inspect.isclass(origin) and arguments and hasattr(origin, "__aiter__" if _is_async(origin) else "__next__"):
        return _returned(model, arguments[0])
    if origin is tuple:
        return {f"{DEFAULT_OUTPUT}_{i}": _result(model, a) for i, a in enumerate(arguments) if a is not Ellipsis}
    if typing.is_typeddict(hint):
        named = typing.get_type_hints(hint, include_extras=True)
        return {name: _result(model, kind) for name, kind in named.items()}
    return {DEFAULT_OUTPUT: _result(model, hint)}


def _is_async(origin: type) -> bool:
    return hasattr(origin, "__anext__")


def _result(model: str, hint: Any) -> TensorType:
    return SCALARS[hint] if hint in SCALARS else _tensor_type(model, "the returned value", hint)


def _tensor_type(model: str, what: str, hint: Any) -> TensorType:
    if isinstance(hint, TensorType):
        return hint
    if typing.get_origin(hint) is Annotated:
        for extra in typing.get_args(hint)[1:]:
            if isinstance(extra, TensorType):
                return extra
    raise InvalidArgumentError(
        f"model '{model}': the type of {what} is {getattr(hint, '__name__', hint)}, expected one that says datatype "
        f"and shape: {HOW_TO}"
    )


def _stated(model: str, name: str, given: Any) -> TensorType:
    if isinstance(given, TensorType):
        return given
    raise InvalidArgumentError(
        f"model '{model}': the type of '{name}' is {given!r}, expected one such as naiad.FP32[-1]"
    )


def _name(function: Callable[..., Any]) -> str:
    return f"'{getattr(function, '__qualname__', type(function).__name__)}'"
