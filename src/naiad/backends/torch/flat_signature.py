"""The tensors of an exported or compiled program, and their names in a configuration.

A program takes and returns its tensors as flat lists, whatever structure the model's ``forward`` has. Source of the
names: the reference's pytorch backend for ``torch_aoti``. ``INPUT__i`` and ``OUTPUT__i`` count the tensors;
``ARGS[i]``, ``KWARGS[k]``, ``RESULT``, ``RESULT[i]`` and ``RESULT[k]`` are their places in the call, with more brackets
for nested places. An input may also have the name of forward's argument. Other names stand for the tensors in order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from naiad.backends.shared.completion import GraphSignature
from naiad.backends.shared.signature import ModelTensor
from naiad.errors import ModelLoadError
from naiad.tensor.dtypes import BY_WIRE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_INDEXED = re.compile(r"^.+__(\d+)$")
_WIRES = {
    "torch.bool": "BOOL",
    "torch.uint8": "UINT8",
    "torch.uint16": "UINT16",
    "torch.uint32": "UINT32",
    "torch.uint64": "UINT64",
    "torch.int8": "INT8",
    "torch.int16": "INT16",
    "torch.int32": "INT32",
    "torch.int64": "INT64",
    "torch.float16": "FP16",
    "torch.float32": "FP32",
    "torch.float64": "FP64",
    "torch.bfloat16": "BF16",
}


@dataclass(frozen=True, slots=True)
class FlatTensor:
    """One tensor that a program takes or returns.

    Attributes:
        place: where it is in the call, such as ``ARGS[0]``; "" when that is not known.
        argument: the name of forward's argument, "" for none.
        position: its place in the list that the program takes or returns.
        type_text: torch's name of its type, such as ``torch.float32``; "" when that is not known.
        axes: the sizes; a text is the symbol of a variable one. None when the shape is not known.
    """

    place: str
    argument: str
    position: int
    type_text: str = ""
    axes: tuple[int | str, ...] | None = None

    def named(self, name: str) -> ModelTensor:
        """The tensor as the common checks and auto-complete see it; its type must be known."""
        wire = _WIRES.get(self.type_text)
        shape = tuple(axis if isinstance(axis, int) else -1 for axis in self.axes or ())
        return ModelTensor(name, BY_WIRE[wire] if wire else None, self.type_text, shape or None)

    @property
    def is_scalar(self) -> bool:
        return self.axes == ()


@dataclass(frozen=True, slots=True)
class FlatSignature:
    """All tensors of a program. ``batch_limit`` is the most rows that it takes, None for any number."""

    inputs: tuple[FlatTensor, ...]
    outputs: tuple[FlatTensor, ...]
    batch_limit: int | None = None

    @property
    def batches(self) -> bool:
        """Whether all tensors have the same variable size as their first axis."""
        first = {t.axes[0] if t.axes else None for t in (*self.inputs, *self.outputs)}
        return len(first) == 1 and isinstance(next(iter(first)), str)

    def graph(self) -> GraphSignature:
        """The signature for auto-complete."""
        return GraphSignature(
            tuple(t.named(f"INPUT__{i}") for i, t in enumerate(self.inputs)),
            tuple(t.named(f"OUTPUT__{i}") for i, t in enumerate(self.outputs)),
        )


def bind_flat(model: str, role: str, names: Sequence[str], tensors: Sequence[FlatTensor]) -> Mapping[str, FlatTensor]:
    """The tensor of each name. Every input must have one; outputs may be left out.

    Args:
        role: "input" or "output", for error texts.
        names: those of the configuration, in order.

    Raises:
        ModelLoadError: the names do not fit the tensors; the text shows both.
    """
    chosen = _chosen(names, tensors)
    is_complete = len(chosen) == len(tensors) if role == "input" else True
    if len(chosen) == len(names) and len(set(chosen)) == len(chosen) and is_complete:
        return {name: tensors[index] for name, index in zip(names, chosen, strict=True)}
    known = "; ".join(_names_of(i, t, role) for i, t in enumerate(tensors)) or "none"
    raise ModelLoadError(
        f"model '{model}': the {role}s {_listed(names)} of the configuration do not fit the program's {len(tensors)} "
        f"{role} tensor(s), which are called {known}"
    )


def _chosen(names: Sequence[str], tensors: Sequence[FlatTensor]) -> list[int]:
    """The index of the tensor behind each name; a shorter list where one does not fit."""
    by_name = {name: i for i, t in enumerate(tensors) for name in (t.argument, t.place) if name}
    if any(name in by_name for name in names):
        return [by_name[name] for name in names if name in by_name]
    numbers = [int(m[1]) for m in map(_INDEXED.match, names) if m]
    if len(numbers) != len(names):
        numbers = list(range(len(names)))
    return [number for number in numbers if number < len(tensors)]


def _names_of(index: int, tensor: FlatTensor, role: str) -> str:
    other = [name for name in (tensor.place, tensor.argument) if name]
    return " or ".join(f"'{name}'" for name in (f"{role.upper()}__{index}", *other))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{n}'" for n in names) or "none"


def places(prefix: str, structure: Any, pytree: Any) -> list[str]:
    """The place of each leaf of a ``TreeSpec`` of torch, in order."""
    leaves = pytree.tree_unflatten(list(range(structure.num_leaves)), structure)
    return [prefix + "".join(_step(key) for key in path) for path, _ in pytree.tree_flatten_with_path(leaves)[0]]


def input_places(structure: Any, pytree: Any) -> list[str]:
    """The places of the inputs, whose structure is the pair of positional and named arguments."""
    positional, named = structure.children() if callable(structure.children) else structure.children_specs
    return [*places("ARGS", positional, pytree), *places("KWARGS", named, pytree)]


def _step(key: Any) -> str:
    for attribute in ("idx", "key", "name"):
        if hasattr(key, attribute):
            return f"[{getattr(key, attribute)}]"
    return f"[{key}]"
