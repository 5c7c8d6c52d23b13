"""Fitting a configuration to a graph: how instances call it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from naiad.backends.shared.signature import check_signature
from naiad.backends.tensorflow.instance import FeedPlan
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from naiad.backends.tensorflow.signature import ModelSignature
    from naiad.config.spec import ModelSpec, TensorSpec


def bind(spec: ModelSpec, signature: ModelSignature, in_caller: bool) -> FeedPlan:
    """The plan of the calls of a model.

    Raises:
        ModelLoadError: the configuration does not fit the model; the text shows both.
    """
    check_signature(spec, signature.input_tensors, signature.output_tensors)
    _check_scalars(spec, signature)
    return FeedPlan(
        inputs={name: signature.inputs[name].place for name in spec.inputs},
        outputs={name: signature.outputs[name].place for name in spec.outputs},
        scalars=_scalars(spec, signature),
        bare=frozenset(t.name for t in spec.outputs.values() if _is_bare(t, signature)),
        fixed=_fixed_shapes(spec, signature),
        in_caller=in_caller,
    )


def _named(spec: ModelSpec) -> Iterator[TensorSpec]:
    yield from spec.inputs.values()
    yield from spec.outputs.values()


def _scalars(spec: ModelSpec, signature: ModelSignature) -> frozenset[str]:
    """Tensors without dims in the graph that the configuration declares with ``dims: [ 1 ]``."""
    if spec.max_batch_size:
        return frozenset()
    ranks = {name: t.rank for name, t in (*signature.outputs.items(), *signature.inputs.items())}
    return frozenset(t.name for t in _named(spec) if ranks[t.name] == 0 and t.dims == (1,) and t.reshape is None)


def _is_bare(tensor: TensorSpec, signature: ModelSignature) -> bool:
    return signature.outputs[tensor.name].rank == 0 and tensor.reshape == ()


def _check_scalars(spec: ModelSpec, signature: ModelSignature) -> None:
    ranks = {name: t.rank for name, t in (*signature.outputs.items(), *signature.inputs.items())}
    for tensor in _named(spec):
        shape = tensor.dims if tensor.reshape is None else tensor.reshape
        if ranks[tensor.name] == 0 and (spec.max_batch_size or shape not in ((), (1,))):
            raise ModelLoadError(
                f"model '{spec.name}': the configuration does not fit the model: '{tensor.name}' has the dims "
                f"{list(tensor.dims)} and max_batch_size is {spec.max_batch_size}, the model has a scalar; write dims: "
                f"[ 1 ] and max_batch_size: 0"
            )


def _fixed_shapes(spec: ModelSpec, signature: ModelSignature) -> dict[str, tuple[int, ...]]:
    """Inputs with an axis that the configuration leaves open and the graph fixes."""
    found = {}
    for tensor in spec.inputs.values():
        own = signature.inputs[tensor.name].tensor.shape
        shape = _model_shape(spec, tensor)
        if own is not None and len(own) == len(shape) and any(a == -1 != b for a, b in zip(shape, own, strict=True)):
            found[tensor.name] = own
    return found


def _model_shape(spec: ModelSpec, tensor: TensorSpec) -> tuple[int, ...]:
    """The shape in which a tensor reaches the model."""
    if tensor.allow_ragged_batch:
        return tensor.shape
    dims = tensor.dims if tensor.reshape is None else tensor.reshape
    return (-1, *dims) if spec.max_batch_size else dims
