"""Whether a configuration has the tensors that a built-in test backend is made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from naiad.backends.shared.signature import shape_text
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.config.spec import ModelSpec, TensorSpec


class Expected(NamedTuple):
    """A tensor: its name, its datatype on the wire, and its dims; dims None for a vector of any length."""

    name: str
    wire: str
    dims: tuple[int, ...] | None


def check_signature(spec: ModelSpec, inputs: Sequence[Expected], outputs: Sequence[Expected]) -> None:
    """Check that a model has just these tensors, in this order.

    Raises:
        ModelLoadError: it has not; the texts are those of the reference's backend.
    """
    _check_tensors(spec.inputs, inputs, "input")
    _check_tensors(spec.outputs, outputs, "output")


def _check_tensors(found: Mapping[str, TensorSpec], expected: Sequence[Expected], kind: str) -> None:
    if len(found) != len(expected):
        plural = "" if len(expected) == 1 else "s"
        raise ModelLoadError(f"expected {len(expected)} {kind}{plural}, got {len(found)}")
    for number, (tensor, wanted) in enumerate(zip(found.values(), expected, strict=True)):
        if tensor.name != wanted.name:
            place = "" if len(expected) == 1 else f"{_ORDINALS[number]} "
            raise ModelLoadError(f"expected {place}{kind} tensor name to be {wanted.name}, got {tensor.name}")
    for tensor, wanted in zip(found.values(), expected, strict=True):
        _check_tensor(tensor, wanted)


_ORDINALS = ("first", "second", "third")


def _check_tensor(tensor: TensorSpec, wanted: Expected) -> None:
    if tensor.reshape is not None:
        raise ModelLoadError(f"expected {tensor.name} to have no reshape")
    if wanted.dims is None:
        if len(tensor.dims) != 1:
            raise ModelLoadError(f"expected {tensor.name} shape to have one dimension, got {shape_text(tensor.dims)}")
    elif tensor.dims != wanted.dims:
        raise ModelLoadError(
            f"expected {tensor.name} shape to be {shape_text(wanted.dims)}, got {shape_text(tensor.dims)}"
        )
    if tensor.dtype.wire != wanted.wire:
        raise ModelLoadError(f"expected {tensor.name} datatype to be {wanted.wire}, got {tensor.dtype.config}")
