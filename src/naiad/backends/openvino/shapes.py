"""Input shapes that the configuration asks for: the batch dimension, and the dims of RESHAPE_IO_LAYERS.

A model is reshaped in a copy, so that one that cannot be reshaped stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from naiad.backends.openvino.failures import reason
from naiad.backends.openvino.signature import has_axes, is_scalar, port_name, shape_text
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from naiad.backends.openvino.settings import OpenVinoSettings


@dataclass(frozen=True, slots=True)
class FittedModel:
    """A model with the shapes that it runs with. ``rows`` is the number of rows that every run must have, 0 for any."""

    model: Any
    rows: int = 0


@dataclass(frozen=True, slots=True)
class BatchAxis:
    """What a configuration says about the first axis.

    Attributes:
        size: ``max_batch_size``.
        others: inputs without it: ragged ones, and those of ``batch_input``.
    """

    size: int
    others: Collection[str] = ()

    def ports(self, model: Any) -> list[tuple[int, Any]]:
        """The inputs of a model whose first axis is the batch, with their places."""
        return [(i, p) for i, p in enumerate(model.inputs) if p.get_names().isdisjoint(self.others)]


def with_dims(name: str, model: Any, dims: Mapping[str, Sequence[int]]) -> Any:
    """A copy of ``model`` whose inputs have these full shapes, -1 for any size (RESHAPE_IO_LAYERS).

    Raises:
        ModelLoadError: the model does not allow them.
    """
    named = [(i, port, port_name(port, dims)) for i, port in enumerate(model.inputs)]
    try:
        return _reshaped(model, {i: list(dims[given]) for i, _, given in named if given in dims})
    except RuntimeError as error:
        asked = ", ".join(f"'{given}' {shape_text(p)} to {list(dims[given])}" for _, p, given in named if given in dims)
        raise ModelLoadError(
            f"model '{name}': RESHAPE_IO_LAYERS gives the inputs the dims of the configuration ({asked}), and the "
            f"model does not allow it: {reason(error)}"
        ) from error


def fit_batch(name: str, model: Any, axis: BatchAxis, settings: OpenVinoSettings) -> FittedModel:
    """``model``, reshaped if need be, so that it takes up to ``max_batch_size`` rows.

    Raises:
        ModelLoadError: it cannot; the text shows both sides and the ways out.
    """
    if not axis.size:
        return FittedModel(model)
    for _, port in axis.ports(model):
        _check_first_axis(name, port, axis.size)
    fixed = _fixed_rows(model, axis)
    if settings.skips_dynamic_batch:
        return _with_fixed_batch(name, model, axis, fixed)
    if fixed <= {axis.size} & {1}:
        return FittedModel(model, min(fixed, default=0))
    return _with_variable_batch(name, model, axis, settings)


def as_batching(model: Any) -> Any | None:
    """A copy with a variable first axis, for a model whose layouts call that axis the batch; None if there is none."""
    import openvino

    if not has_batch_layouts(model):
        return None
    try:
        changed = _with_first_axis(model, BatchAxis(0), openvino.Dimension(-1))
    except RuntimeError:
        return None
    return changed if _is_variable(changed) else None


def has_batch_layouts(model: Any) -> bool:
    """Whether the layouts of all inputs and outputs call the first axis the batch."""
    return all(_is_batch_layout(port) for port in (*model.inputs, *model.outputs))


def most_rows(model: Any, default: int) -> int:
    """``default``, or less where the range of a first axis says so."""
    firsts = [port.get_partial_shape()[0] for port in model.inputs if has_axes(port)]
    limits: list[int] = [axis.get_max_length() for axis in firsts if axis.is_dynamic]
    return min([default, *(limit for limit in limits if limit > 0)])


def _with_variable_batch(name: str, model: Any, axis: BatchAxis, settings: OpenVinoSettings) -> FittedModel:
    import openvino

    try:
        reshaped = _with_first_axis(model, axis, openvino.Dimension(1, axis.size))
        if _is_variable(reshaped):
            return FittedModel(reshaped)
        # A range from 1 to 1 is no range any more.
        if axis.size == 1 and _has_one_row(reshaped):
            return FittedModel(reshaped, 1)
        stuck = next(port for port in reshaped.outputs if not _has_variable_rows(port))
        problem = f"output '{port_name(stuck)}' stays {shape_text(stuck)}"
    except RuntimeError as error:
        problem = reason(error)
    fixed = _fixed_rows(model, axis)
    rows = fixed.pop() if len(fixed) == 1 else 0
    # Without padding only whole batches run; any other says by its error what would help.
    if rows == axis.size or (settings.pads_batch and rows > axis.size):
        return FittedModel(model, rows)
    pad = f', or max_batch_size: {rows} and the parameter ENABLE_BATCH_PADDING: "YES"' if rows > 1 else ""
    raise ModelLoadError(
        f"model '{name}': max_batch_size is {axis.size}, the model has a fixed batch ({_inputs_text(model, axis)}) and "
        f"cannot be reshaped to another: {problem}; write max_batch_size: 0 and the full shapes as dims{pad}"
    )


def _with_fixed_batch(name: str, model: Any, axis: BatchAxis, fixed: set[int]) -> FittedModel:
    try:
        return FittedModel(model if fixed == {axis.size} else _with_first_axis(model, axis, axis.size), axis.size)
    except RuntimeError as error:
        raise ModelLoadError(
            f"model '{name}': with SKIP_OV_DYNAMIC_BATCHSIZE every batch has max_batch_size rows, {axis.size}; the "
            f"model has {_inputs_text(model, axis)} and cannot be reshaped: {reason(error)}"
        ) from error


def _check_first_axis(name: str, port: Any, size: int) -> None:
    text = f"model '{name}': max_batch_size is {size}, and input '{port_name(port)}' has the shape {shape_text(port)}"
    if is_scalar(port):
        raise ModelLoadError(f"{text}, without a first axis that could be the batch; write max_batch_size: 0")
    if not has_axes(port):
        return
    first = port.get_partial_shape()[0]
    if first.is_dynamic and (first.get_min_length() > 1 or 0 < first.get_max_length() < size):
        write = f"max_batch_size: {first.get_max_length()}" if first.get_min_length() <= 1 else "max_batch_size: 0"
        raise ModelLoadError(
            f"{text}, whose first axis has another range; write {write}, or export it with a wider one"
        )


def _fixed_rows(model: Any, axis: BatchAxis) -> set[int]:
    firsts = [port.get_partial_shape()[0] for _, port in axis.ports(model) if has_axes(port)]
    return {first.get_length() for first in firsts if first.is_static}


def _with_first_axis(model: Any, axis: BatchAxis, first: Any) -> Any:
    ports = [(i, port.get_partial_shape()) for i, port in axis.ports(model) if has_axes(port)]
    return _reshaped(model, {i: [first, *list(shape)[1:]] for i, shape in ports})


def _reshaped(model: Any, shapes: Mapping[int, Sequence[Any]]) -> Any:
    import openvino

    copy = model.clone()
    copy.reshape({i: openvino.PartialShape(list(shape)) for i, shape in shapes.items()})
    return copy


def _is_variable(model: Any) -> bool:
    return all(_has_variable_rows(port) for port in model.outputs)


def _has_one_row(model: Any) -> bool:
    return all(has_axes(port) and port.get_partial_shape()[0] == 1 for port in model.outputs)


def _has_variable_rows(port: Any) -> bool:
    shape = port.get_partial_shape()
    return shape.rank.is_dynamic or (has_axes(port) and shape[0].is_dynamic)


def _is_batch_layout(port: Any) -> bool:
    import openvino

    layout = port.get_node().layout
    found = openvino.layout_helpers
    return has_axes(port) and found.has_batch(layout) and found.batch_idx(layout) == 0


def _inputs_text(model: Any, axis: BatchAxis) -> str:
    return ", ".join(f"input '{port_name(port)}' {shape_text(port)}" for _, port in axis.ports(model))
