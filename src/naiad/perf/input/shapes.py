"""The shape of one request's tensors: the model's, with variable dimensions filled in from ``--shape``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from naiad.perf.input.element_bytes import shape_text
from naiad.perf.input.error import PerfInputError
from naiad.perf.steps import ModelDescription, TensorDescription

Shapes = Mapping[str, tuple[int, ...]]


def checked_shapes(given: Shapes, model: ModelDescription) -> Shapes:
    """What ``--shape`` says, checked against the inputs of the model. The name ``""`` stands for the only input.

    Raises:
        PerfInputError: there is no such input, or it takes no such shape.
    """
    inputs = {tensor.name: tensor for tensor in model.inputs}
    shapes = dict(given)
    if "" in shapes:
        if len(inputs) != 1:
            raise PerfInputError(
                f"the shape {shape_text(shapes[''])} has no name, and model '{model.name}' has {len(inputs)} inputs: "
                f"say for which, such as {next(iter(inputs), 'INPUT0')}:{'x'.join(map(str, shapes['']))}"
            )
        shapes[next(iter(inputs))] = shapes.pop("")
    for name, shape in shapes.items():
        if name not in inputs:
            raise PerfInputError(
                f"--shape {_option(name, shape)} names no input of model '{model.name}', expected one of "
                f"{', '.join(inputs)}"
            )
        if not fits(shape, inputs[name].shape):
            text = incompatible_text(inputs[name], shape)
            raise PerfInputError(f"{text}: change --shape, which is without the batch dimension")
    return shapes


def fits(shape: Sequence[int], model_shape: Sequence[int]) -> bool:
    """Whether a shape is one that the model takes; both without the batch dimension."""
    return len(shape) == len(model_shape) and all(m in (-1, s) for s, m in zip(shape, model_shape, strict=True))


def incompatible_text(tensor: TensorDescription, shape: Sequence[int]) -> str:
    """The error text for a shape that the model does not take."""
    return (
        f'The supplied shape of {shape_text(shape)} for input "{tensor.name}" is incompatible with the model\'s input '
        f"shape of {shape_text(tensor.shape)}"
    )


def default_shape(tensor: TensorDescription, shapes: Shapes) -> tuple[int, ...] | None:
    """The shape of a tensor for which the data give none; None when it has variable dimensions without a value."""
    if tensor.name in shapes:
        return shapes[tensor.name]
    return None if -1 in tensor.shape else tensor.shape


def dynamic_shape_error(tensor: TensorDescription) -> PerfInputError:
    """A variable dimension is left without a value."""
    return PerfInputError(
        f"input {tensor.name} contains dynamic shape, provide shapes to send along with the request: the model's shape "
        f"is {shape_text(tensor.shape)}; add --shape {_option(tensor.name, [abs(size) for size in tensor.shape])} with "
        "sizes of your own"
    )


def _option(name: str, shape: Sequence[int]) -> str:
    return f"{name}:{','.join(map(str, shape))}"
