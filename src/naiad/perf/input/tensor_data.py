"""The shape and the size of a tensor whose data a user gives."""

from __future__ import annotations

from collections.abc import Sequence

from naiad.errors import InvalidArgumentError
from naiad.perf.input.element_bytes import datatype_of, element_count, shape_text
from naiad.perf.input.error import PerfInputError
from naiad.perf.input.location import Location
from naiad.perf.input.shapes import Shapes, default_shape, fits, incompatible_text
from naiad.perf.steps import TensorDescription, TensorValue
from naiad.tensor.bytes_codec import check_strings


def shape_of(
    tensor: TensorDescription, shapes: Shapes, elements: int | None, nesting: Sequence[int], where: Location
) -> tuple[int, ...]:
    """The shape of data that come without one.

    It is that of ``--shape``; else that of arrays nested as deep as the model's shape; else the model's, whose only
    variable dimension follows from the number of elements.

    Args:
        elements: how many there are; None when that is not known.
        nesting: the shape of the nested arrays; empty for other data.

    Raises:
        PerfInputError: there is more than one variable dimension.
    """
    found = default_shape(tensor, shapes)
    if found is not None:
        return found
    if len(nesting) == len(tensor.shape):
        return checked_shape(tensor, nesting, where)
    fixed = element_count([size for size in tensor.shape if size != -1])
    if elements is None or tensor.shape.count(-1) != 1 or not fixed or elements % fixed:
        raise PerfInputError(
            f'The variable-sized tensor "{tensor.name}" with model shape {shape_text(tensor.shape)} needs to have its '
            f'shape fully defined. See the --shape option, or give "shape" beside "content" {where}'
        )
    return tuple(elements // fixed if size == -1 else size for size in tensor.shape)


def checked_shape(tensor: TensorDescription, shape: Sequence[int], where: Location) -> tuple[int, ...]:
    """A shape that the model takes.

    Raises:
        PerfInputError: it does not take this one.
    """
    if not fits(shape, tensor.shape):
        raise PerfInputError(f"{incompatible_text(tensor, shape)} {where}")
    return tuple(shape)


def checked_value(tensor: TensorDescription, shape: Sequence[int], data: bytes, where: Location) -> TensorValue:
    """A tensor of which the size is right.

    Raises:
        PerfInputError: the data have another size than the shape says.
    """
    datatype, count = datatype_of(tensor), element_count(shape)
    if datatype.is_bytes:
        try:
            check_strings(data, count, f"'{tensor.name}'")
        except InvalidArgumentError as error:
            raise PerfInputError(f"{error}: its shape is {shape_text(shape)} {where}") from None
    elif len(data) != (size := count * datatype.itemsize):
        raise PerfInputError(
            f"mismatch in the data provided for {tensor.name}. Expected: {size} bytes, Got: {len(data)} bytes: its "
            f"shape is {shape_text(shape)}, its datatype {tensor.datatype} {where}"
        )
    return TensorValue(tensor.name, tensor.datatype, tuple(shape), data)
