"""Models whose arguments are more than tensors: tuples and dictionaries of them, and values such as booleans."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from naiad.convert.errors import ConvertError


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor is in the arguments: its number among all tensors."""

    number: int


def take_apart(element: Any) -> tuple[dict[str, Any], Any]:
    """The tensors of one element of a data loader by name, and the element with a ``TensorPlace`` for each of them.

    A tensor is named by its way from the root: ``input__0_1`` is the second one of the first argument.
    """
    tensors: dict[str, Any] = {}
    return tensors, _without_tensors(element, "", tensors)


def is_nested(structure: Any) -> bool:
    """Whether the arguments are more than one tensor, a flat sequence of tensors, or a flat dictionary of them."""
    values = structure.values() if isinstance(structure, Mapping) else structure
    flat = values if isinstance(structure, list | tuple | Mapping) else [structure]
    return not all(isinstance(value, TensorPlace) for value in flat)


def tensors_alone(loader: Iterable[Any], structure: Any) -> Iterator[dict[str, Any]]:
    """The tensors of each element.

    Raises:
        ConvertError: an element differs from ``structure`` in more than its tensors.
    """
    for index, element in enumerate(loader):
        tensors, found = take_apart(element)
        if found != structure:
            raise ConvertError(
                f"sample {index} of the data loader differs from sample 0 in more than tensors; what is no tensor "
                f"becomes a part of the model, so give every sample the same"
            )
        yield tensors


def with_tensors(structure: Any, tensors: tuple[Any, ...]) -> Any:
    """The element that ``take_apart`` took apart."""
    if isinstance(structure, TensorPlace):
        return tensors[structure.number]
    if isinstance(structure, Mapping):
        return {key: with_tensors(value, tensors) for key, value in structure.items()}
    if isinstance(structure, list | tuple):
        found = [with_tensors(value, tensors) for value in structure]
        return found if isinstance(structure, list) else tuple(found)
    return structure


def of_tensors(model: Any, structure: Any) -> Any:
    """A module that takes the tensors alone, in their order, and calls ``model`` with all of its arguments.

    A dictionary that comes last has keyword arguments, as in the original, unless the model does not take them.
    """
    import torch

    has_keywords = _has_keywords(model, structure)

    class OfTensors(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            arguments = with_tensors(structure, tensors)
            if isinstance(arguments, Mapping):
                return self.model(**arguments)
            if has_keywords:
                return self.model(*arguments[:-1], **arguments[-1])
            return self.model(*arguments) if isinstance(arguments, list | tuple) else self.model(arguments)

    return OfTensors().eval()


def _has_keywords(model: Any, structure: Any) -> bool:
    if not isinstance(structure, list | tuple) or not structure or not isinstance(structure[-1], Mapping):
        return False
    try:
        inspect.signature(getattr(model, "forward", model)).bind(*structure[:-1], **structure[-1])
    except (TypeError, ValueError):
        return False
    return True


def _without_tensors(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _without_tensors(inner, f"{name}_{key}" if name else str(key), tensors) for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        found = [
            _without_tensors(inner, f"{name}_{index}" if name else f"input__{index}", tensors)
            for index, inner in enumerate(value)
        ]
        return found if isinstance(value, list) else tuple(found)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        tensors[name or "input__0"] = value
        return TensorPlace(len(tensors) - 1)
    return value
