"""One tensor as JSON gives it: an array, ``{"b64": ...}``, or ``{"content": ..., "shape": ...}``."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from naiad.perf.input.element_bytes import datatype_of, element_count, shape_text
from naiad.perf.input.element_values import encode_values, flattened
from naiad.perf.input.error import PerfInputError
from naiad.perf.input.location import Location
from naiad.perf.input.shapes import Shapes
from naiad.perf.input.tensor_data import checked_shape, checked_value, shape_of
from naiad.perf.steps import TensorDescription, TensorValue
from naiad.wire.json_text import kind_of


def read_tensor(tensor: TensorDescription, value: Any, shapes: Shapes, where: Location) -> TensorValue:
    """The tensor of one row, without the batch dimension.

    Args:
        value: what JSON holds under the name of the tensor.
        shapes: those of ``--shape``.

    Raises:
        PerfInputError: the value is no tensor, or not one that the model takes.
    """
    shape: tuple[int, ...] | None = None
    if isinstance(value, dict):
        if "shape" in value:
            shape = _given_shape(tensor, value["shape"], where)
        if "b64" not in value:
            value = _content(tensor, value, where)
    if isinstance(value, list):
        return _from_array(tensor, value, shape, shapes, where)
    if isinstance(value, dict) and "b64" in value:
        return _from_base64(tensor, value["b64"], shape, shapes, where)
    raise PerfInputError(
        f"The tensor values are not supported. Expected an array or b64 string {where}: found {kind_of(value)} for "
        f"'{tensor.name}'"
    )


def _content(tensor: TensorDescription, value: dict[str, Any], where: Location) -> Any:
    if "content" not in value:
        raise PerfInputError(
            f'missing content field. {where}: \'{tensor.name}\' is an object, expected "content" or "b64" in it'
        )
    return value["content"]


def _from_array(
    tensor: TensorDescription, value: list[Any], shape: tuple[int, ...] | None, shapes: Shapes, where: Location
) -> TensorValue:
    try:
        elements, nesting = flattened(value)
    except ValueError as error:
        raise PerfInputError(f"the data of '{tensor.name}' are no tensor: {error} {where}") from None
    if shape is None:
        shape = shape_of(tensor, shapes, len(elements), nesting, where)
    if len(nesting) > 1 and nesting != shape:
        raise PerfInputError(
            f"the nested arrays of '{tensor.name}' have the shape {shape_text(nesting)}, expected {shape_text(shape)} "
            f"or a flat array {where}"
        )
    data = encode_values(tensor, elements, where)
    if datatype_of(tensor).is_bytes and len(elements) != (count := element_count(shape)):
        raise PerfInputError(
            f"provided data for input {tensor.name} has {len(elements)} elements, expect {count}: its shape is "
            f"{shape_text(shape)} {where}"
        )
    return checked_value(tensor, shape, data, where)


def _from_base64(
    tensor: TensorDescription, value: Any, shape: tuple[int, ...] | None, shapes: Shapes, where: Location
) -> TensorValue:
    if not isinstance(value, str):
        raise PerfInputError(
            f"the value of b64 field should be of type string {where}: found {kind_of(value)} for '{tensor.name}'"
        )
    # Line ends and a missing end are taken, as by most readers.
    text = "".join(value.split()).rstrip("=")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise PerfInputError(f"the value of the b64 field of '{tensor.name}' is no base64: {error} {where}") from None
    if shape is None:
        size = datatype_of(tensor).itemsize
        elements = len(data) // size if size and len(data) % size == 0 else None
        shape = shape_of(tensor, shapes, elements, (), where)
    return checked_value(tensor, shape, data, where)


def _given_shape(tensor: TensorDescription, value: Any, where: Location) -> tuple[int, ...]:
    if not isinstance(value, list) or any(type(size) is not int or size < 0 for size in value):
        raise PerfInputError(
            f"the shape of '{tensor.name}' is {_shape_or_kind(value)}, expected an array of integers from 0 on {where}"
        )
    return checked_shape(tensor, value, where)


def _shape_or_kind(value: Any) -> str:
    return kind_of(value) if not isinstance(value, list) else f"[{', '.join(kind_of(size) for size in value[:8])}]"
