"""The tensors of a model: names, datatypes and shapes, found from samples and the outputs for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """One input or output.

    Attributes:
        dtype: numpy's name; "str" for strings.
        shape: with -1 for a dimension that varies, the batch included.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SourceSignature:
    """All tensors of a model.

    Attributes:
        is_batching: whether the first axis of all of them is that of the batch.
        by_name: whether the model is called with named arguments.
    """

    inputs: tuple[NamedTensor, ...]
    outputs: tuple[NamedTensor, ...]
    is_batching: bool
    by_name: bool = False

    def as_json(self) -> dict[str, Any]:
        """For ``from_json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> SourceSignature:
        """What ``as_json`` made, also after a way through a file."""

        def tensors(entries: Iterable[Mapping[str, Any]]) -> tuple[NamedTensor, ...]:
            return tuple(NamedTensor(e["name"], e["dtype"], tuple(e["shape"])) for e in entries)

        return cls(tensors(given["inputs"]), tensors(given["outputs"]), given["is_batching"], given["by_name"])


def described(samples: Sequence[Mapping[str, np.ndarray[Any, Any]]], is_batching: bool) -> tuple[NamedTensor, ...]:
    """The tensors that all samples fit."""
    found = []
    for name, first in samples[0].items():
        shapes = [sample[name].shape for sample in samples]
        varies = [len(set(sizes)) > 1 for sizes in zip(*shapes, strict=True)]
        shape = [-1 if more else size for size, more in zip(first.shape, varies, strict=True)]
        if is_batching and shape:
            shape[0] = -1
        dtype = "str" if first.dtype.kind in "SUO" else first.dtype.name
        found.append(NamedTensor(name, dtype, tuple(shape)))
    return tuple(found)


def identifier(name: str) -> str:
    """``name`` as an argument's name."""
    made = re.sub(r"\W", "_", name)
    return f"_{made}" if not made or made[0].isdigit() else made
