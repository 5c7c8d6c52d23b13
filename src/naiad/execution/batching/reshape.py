"""``reshape`` of a configuration: the shape that a model sees, and the shape that clients send and get."""

from __future__ import annotations

from naiad.config.spec import ModelSpec, TensorSpec

Shape = tuple[int, ...]


def as_model_sees(shape: Shape, tensor: TensorSpec, spec: ModelSpec) -> Shape:
    """The shape of an input in the model; variable dims are taken, in order, from those that the client sent."""
    if tensor.reshape is None:
        return shape
    return _filled(tensor.reshape, tensor.dims, shape, spec)


def as_clients_get(shape: Shape, tensor: TensorSpec, spec: ModelSpec) -> Shape:
    """The shape of an output for clients; -1 where the model's shape leaves it open."""
    if tensor.reshape is None:
        return shape
    return _filled(tensor.dims, tensor.reshape, shape, spec)


def _filled(wanted: Shape, described: Shape, found: Shape, spec: ModelSpec) -> Shape:
    lead = found[:1] if spec.max_batch_size else ()
    variable = iter([n for n, dim in zip(found[len(lead) :], described, strict=False) if dim == -1])
    return (*lead, *(next(variable, -1) if dim == -1 else dim for dim in wanted))
