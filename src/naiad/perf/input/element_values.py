"""Values of JSON as the elements of a tensor."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import numpy as np

from naiad.perf.input.element_bytes import datatype_of, encode_bytes_elements
from naiad.perf.input.error import PerfInputError
from naiad.perf.input.location import Location
from naiad.perf.steps import TensorDescription
from naiad.tensor.dtypes import DataType
from naiad.wire.json_text import kind_of

_FLOATS: Final = frozenset({"FP16", "BF16", "FP32", "FP64"})
_WORDS: Final = {"BOOL": "bool", "FP32": "float", "FP64": "fp64", "BYTES": "string"}
_NUMBERS: Final = frozenset({int, float})
_WHOLE: Final = frozenset({int})
_TRUTH: Final = frozenset({bool})
_TEXT: Final = frozenset({str})


def flattened(values: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """The elements of nested arrays, row by row, and the shape that the nesting has.

    Raises:
        ValueError: arrays that stand side by side differ in length.
    """
    shape = [len(values)]
    while values and type(values[0]) is list:
        size = len(values[0])
        if any(type(row) is not list or len(row) != size for row in values):
            raise ValueError(f"the arrays at depth {len(shape) + 1} have different lengths, expected {size} each")
        values = list(chain.from_iterable(values))
        shape.append(size)
    return values, tuple(shape)


def encode_values(tensor: TensorDescription, values: list[Any], where: Location) -> bytes:
    """The elements in the binary form of the protocol.

    Args:
        values: numbers, booleans or strings. A boolean may be 0 or 1, and a float may be written without a point.

    Raises:
        PerfInputError: an element is of another kind, or out of the range of the datatype.
    """
    datatype = datatype_of(tensor)
    kinds = frozenset(map(type, values))
    if datatype.is_bytes:
        _check_kinds(tensor, values, kinds, _TEXT, where)
        return encode_bytes_elements([text.encode("utf-8", "surrogatepass") for text in values])
    if datatype.wire in _FLOATS:
        _check_kinds(tensor, values, kinds, _NUMBERS, where)
        return _floats(tensor, datatype, values, where)
    if datatype.wire == "BOOL":
        _check_kinds(tensor, values, kinds, _WHOLE if int in kinds else _TRUTH, where)
        _check_range(tensor, values, 0, 1, where)
        return bytes(values)
    _check_kinds(tensor, values, kinds, _WHOLE, where)
    bounds = np.iinfo(datatype.wire.lower())
    _check_range(tensor, values, int(bounds.min), int(bounds.max), where)
    return np.array(values, datatype.numpy).tobytes()


def _floats(tensor: TensorDescription, datatype: DataType, values: list[Any], where: Location) -> bytes:
    exact = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        found = exact.astype(datatype.numpy)
    lost = np.isinf(found) & ~np.isinf(exact)
    if lost.any():
        raise _unfit(tensor, values, int(np.argmax(lost)), where)
    return found.tobytes()


def _check_kinds(
    tensor: TensorDescription, values: list[Any], found: frozenset[type], expected: frozenset[type], where: Location
) -> None:
    if not found <= expected:
        raise _unfit(tensor, values, next(i for i, value in enumerate(values) if type(value) not in expected), where)


def _check_range(tensor: TensorDescription, values: list[Any], least: int, most: int, where: Location) -> None:
    if values and not (least <= min(values) and max(values) <= most):
        index = next(i for i, value in enumerate(values) if not least <= value <= most)
        raise _unfit(tensor, values, index, where)


def _unfit(tensor: TensorDescription, values: list[Any], index: int, where: Location) -> PerfInputError:
    word = _WORDS.get(tensor.datatype, f"{tensor.datatype.lower()}_t")
    return PerfInputError(
        f"unable to find {word} data in json: element {index} of '{tensor.name}' is {kind_of(values[index])}, expected "
        f"a value of {tensor.datatype} {where}"
    )
