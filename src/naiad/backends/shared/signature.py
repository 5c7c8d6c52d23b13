"""Comparing a configuration with the tensors that the model itself declares.

Each text begins as the reference's backends write it; what to write in the configuration follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from naiad.config.parsing.suggest import did_you_mean
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from naiad.config.spec import ModelSpec, TensorSpec
    from naiad.tensor.dtypes import DataType


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """One input or output as the model file declares it.

    ``dtype`` is None when the type has no counterpart in the protocol; ``type_text`` is the framework's own name of it.
    ``shape`` includes the batch dimension, with -1 for a variable axis, and is None when the rank is zero or unknown.
    ``required`` is False for an input with a value of its own.
    """

    name: str
    dtype: DataType | None
    type_text: str
    shape: tuple[int, ...] | None
    required: bool = True

    @property
    def can_batch(self) -> bool:
        """True when the first axis exists and is variable."""
        return bool(self.shape) and self.shape is not None and self.shape[0] == -1


def check_signature(spec: ModelSpec, inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> None:
    """Raise ``ModelLoadError`` with every difference between ``spec`` and the model's own tensors.

    An axis fits when both sides agree or when either is -1: a configuration may leave open what the model fixes.
    """
    problems = [
        *_names("input", spec.inputs, inputs),
        *_missing(spec, inputs),
        *_names("output", spec.outputs, outputs),
        *_tensors("input", spec, spec.inputs.values(), inputs),
        *_tensors("output", spec, spec.outputs.values(), outputs),
    ]
    if problems:
        raise ModelLoadError(f"{_head(spec, inputs)}: " + "; ".join(problems))


def _head(spec: ModelSpec, inputs: Sequence[ModelTensor]) -> str:
    required = sum(tensor.required for tensor in inputs)
    if not required <= len(spec.inputs) <= len(inputs):
        counts = f"configuration expects {len(spec.inputs)} inputs, model provides {len(inputs)}"
        return f"unable to load model '{spec.name}', {counts}"
    return f"model '{spec.name}': the configuration does not fit the model"


def shape_text(shape: Sequence[int]) -> str:
    """``[-1,3,224]``, as the protocol prints shapes."""
    return "[" + ",".join(map(str, shape)) + "]"


def _names(role: str, configured: Iterable[str], tensors: Sequence[ModelTensor]) -> list[str]:
    known = sorted(t.name for t in tensors)
    allowed = f"allowed {role}s are: {', '.join(known) or 'none'}"
    return [
        f"unexpected inference {role} '{n}', {allowed}{did_you_mean(n, known)}" for n in configured if n not in known
    ]


def _missing(spec: ModelSpec, tensors: Sequence[ModelTensor]) -> list[str]:
    lost = [t for t in tensors if t.required and t.name not in spec.inputs]
    return [f"the model needs input '{t.name}', which the configuration lacks; write {_entry(spec, t)}" for t in lost]


def _entry(spec: ModelSpec, tensor: ModelTensor) -> str:
    data_type = tensor.dtype.config if tensor.dtype else f"(no data type for {tensor.type_text})"
    return f'input {{ name: "{tensor.name}" data_type: {data_type} dims: {_dims_text(spec, tensor.shape)} }}'


def _dims_text(spec: ModelSpec, shape: tuple[int, ...] | None) -> str:
    # A scalar, or a tensor of unknown rank: dims must not be empty.
    dims = (1,) if shape is None else shape[1:] if spec.max_batch_size else shape
    return "[ " + ", ".join(map(str, dims)) + " ]"


def _tensors(role: str, spec: ModelSpec, tensors: Iterable[TensorSpec], declared: Sequence[ModelTensor]) -> list[str]:
    by_name = {t.name: t for t in declared}
    problems = []
    for tensor in tensors:
        own = by_name.get(tensor.name)
        if own is None:
            continue
        found = _dtype_problem(tensor, own)
        if not found and tensor.allow_ragged_batch:
            found = _ragged_problem(tensor, own) if role == "input" else None
        elif not found:
            found = _batch_problem(spec, own)
            # One problem for each tensor: a shape without a batch axis would only repeat the first.
            if not found and (difference := _shape_problem(spec, tensor, own)):
                problems.append(f"model '{spec.name}', tensor '{tensor.name}': {difference}")
        if found:
            problems.append(f"{role} '{tensor.name}': {found}")
    return problems


def _dtype_problem(tensor: TensorSpec, own: ModelTensor) -> str | None:
    if own.dtype is None:
        return f"the model's type {own.type_text} is not a tensor type that can be served"
    if own.dtype != tensor.dtype:
        return (
            f"the configuration says {tensor.dtype.config}, the model has {own.dtype.config} ({own.type_text}); "
            f"write data_type: {own.dtype.config}"
        )
    return None


def _batch_problem(spec: ModelSpec, own: ModelTensor) -> str | None:
    if not spec.max_batch_size or own.shape is None or own.can_batch:
        return None
    return (
        f"max_batch_size is {spec.max_batch_size}, but the first axis of the model's shape {shape_text(own.shape)} is "
        f"not variable, so it cannot batch; write max_batch_size: 0 and the full shape as dims, or export the model "
        f"with a variable batch axis"
    )


def _shape_problem(spec: ModelSpec, tensor: TensorSpec, own: ModelTensor) -> str | None:
    if own.shape is None:
        return None
    dims = tensor.dims if tensor.reshape is None else tensor.reshape
    shape = (-1, *dims) if spec.max_batch_size else tuple(dims)
    difference = _difference(shape, own.shape)
    if difference is None:
        return None
    field = "dims:" if tensor.reshape is None else "reshape { shape:"
    end = "" if tensor.reshape is None else " }"
    note = (
        "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete "
        if spec.max_batch_size
        else ""
    )
    return (
        f"the model expects {len(own.shape)} dimensions (shape {shape_text(own.shape)}) but the model configuration "
        f"specifies {len(shape)} dimensions ({note}shape {shape_text(shape)}): {difference}; write {field} "
        f"{_dims_text(spec, own.shape)}{end}"
    )


def _ragged_problem(tensor: TensorSpec, own: ModelTensor) -> str | None:
    """For an input that holds a whole batch without being a row for each item."""
    if own.shape is None or _difference(tensor.shape, own.shape) is None:
        return None
    return (
        f"it holds a batch as a tensor of shape {shape_text(tensor.shape)} (ragged, or made by 'batch_input'), the "
        f"model has {shape_text(own.shape)}: export it with that shape, or remove what asks for it"
    )


def _difference(shape: tuple[int, ...], own: tuple[int, ...]) -> str | None:
    if len(shape) != len(own):
        return f"{_axes(len(shape))} where the model has {len(own)}"
    wrong = [i for i, (a, b) in enumerate(zip(shape, own, strict=True)) if a != b and a != -1 and b != -1]
    return ", ".join(f"axis {i} is {shape[i]} where the model has {own[i]}" for i in wrong) or None


def _axes(count: int) -> str:
    return "1 axis" if count == 1 else f"{count} axes"
