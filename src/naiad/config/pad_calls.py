"""Reading the parameters ``batching.<tensor>``: ``pad(0, to=multiple(8), mask=MASK)`` and ``unpad(INPUT)``.

The grammar is that of Python's calls; nothing of it is ever evaluated.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from naiad.config.assembly import PadSpec, UnpadSpec
from naiad.tensor.dtypes import BY_WIRE, DataType

if TYPE_CHECKING:
    from fractions import Fraction

PREFIX: Final = "batching."
KEEP: Final = "keep"
PAD: Final = "pad(VALUE, to=max|multiple(N)|buckets(N, ...), dims=N|(N, ...), mask=NAME, mask_type=DATATYPE)"
UNPAD: Final = "unpad(INPUT, dims=N|(N, ...), scale=N|N/N)"
_LONGEST: Final = 512
_LARGEST: Final = 1 << 31
_MOST: Final = 256
_Read = TypeVar("_Read")


class PadCallError(ValueError):
    """A text is not such a call; the message completes "... is 'pad(': "."""


def read_pad(text: str, dims: Sequence[int], dtype: DataType) -> PadSpec:
    """The ``pad(...)`` of an input with these configured dims, -1 where variable.

    Raises:
        PadCallError: what is wrong with it.
    """
    given, named = _call(text, "pad", ("to", "dims", "mask", "mask_type"), PAD)
    multiple, buckets = _target(named.get("to"))
    mask = "" if "mask" not in named else _name(named["mask"], "mask")
    if "mask_type" in named and not mask:
        raise PadCallError("mask_type is given without a mask")
    mask_dtype = _mask_type(named.get("mask_type")) if mask else None
    return PadSpec(_padded(named.get("dims"), dims), _value(given, dtype), multiple, buckets, mask, mask_dtype)


def read_unpad(text: str, pads: Mapping[str, PadSpec], dims: Sequence[int]) -> UnpadSpec:
    """The ``unpad(...)`` of an output with these configured dims; ``pads`` are those of the inputs.

    Raises:
        PadCallError: what is wrong with it.
    """
    given, named = _call(text, "unpad", ("dims", "scale"), UNPAD)
    source = _name(given, "the input")
    if source not in pads:
        raise PadCallError(f"'{source}' is no input with 'pad'; these are: {', '.join(pads) or 'none'}")
    wanted = pads[source].dims if "dims" not in named else _numbers(named["dims"], "dims", 0)
    if len(wanted) != len(pads[source].dims):
        raise PadCallError(
            f"dims has {len(wanted)} numbers, and input '{source}' has {len(pads[source].dims)} padded dims"
        )
    _check_dims(wanted, dims, "the output")
    return UnpadSpec(source, wanted, _scale(named["scale"]) if "scale" in named else 1)


def _call(text: str, name: str, keywords: Sequence[str], grammar: str) -> tuple[ast.expr, dict[str, ast.expr]]:
    """The one value and the named ones of a call like ``name(value, keyword=value)``."""
    if len(text) > _LONGEST:
        raise PadCallError(f"it has {len(text)} characters, at most {_LONGEST} are read")
    try:
        found: ast.expr = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        # The parser has a ValueError for a null byte, and the last two for deep nesting.
        raise PadCallError(f"expected {grammar}") from None
    if not (isinstance(found, ast.Call) and isinstance(found.func, ast.Name) and found.func.id == name):
        raise PadCallError(f"expected {grammar}")
    named = {k.arg: k.value for k in found.keywords if k.arg is not None}
    # Fewer names than keywords: one is given twice, or is a ``**``, which Python's parser lets pass.
    if len(found.args) != 1 or isinstance(found.args[0], ast.Starred) or len(named) != len(found.keywords):
        raise PadCallError(f"expected {grammar}")
    if unknown := [key for key in named if key not in keywords]:
        raise PadCallError(f"'{unknown[0]}' is unknown; expected {grammar}")
    return found.args[0], named


def _target(found: ast.expr | None) -> tuple[int, tuple[int, ...]]:
    """``to``: the multiple and the buckets."""
    if found is None or (isinstance(found, ast.Name) and found.id == "max"):
        return 1, ()
    if isinstance(found, ast.Call) and isinstance(found.func, ast.Name) and not found.keywords:
        # One argument more than allowed is enough to refuse them.
        numbers = tuple(_number(argument, found.func.id, 1) for argument in found.args[: _MOST + 1])
        if found.func.id == "multiple" and len(numbers) == 1:
            return numbers[0], ()
        if found.func.id == "buckets" and 0 < len(numbers) <= _MOST:
            return 1, tuple(sorted(set(numbers)))
    raise PadCallError(f"to is '{_said(found)}', expected max, multiple(N) or buckets(N, ...)")


def _padded(found: ast.expr | None, dims: Sequence[int]) -> tuple[int, ...]:
    if found is None:
        variable = tuple(index for index, dim in enumerate(dims) if dim < 0)
        if not variable:
            raise PadCallError(f"the input has no variable dim (-1) in {list(dims)}, so there is nothing to pad")
        return variable
    wanted = _numbers(found, "dims", 0)
    _check_dims(wanted, dims, "the input")
    return wanted


def _check_dims(wanted: Sequence[int], dims: Sequence[int], what: str) -> None:
    if len(set(wanted)) != len(wanted):
        raise PadCallError(f"dims {list(wanted)} names a dim twice")
    for index in wanted:
        if index >= len(dims):
            raise PadCallError(
                f"dim {index} is not in the dims {list(dims)} of {what}; they are counted from 0, without the batch"
            )
        if dims[index] >= 0:
            raise PadCallError(f"dim {index} of {what} is always {dims[index]} (dims {list(dims)}), expected -1 there")


def _numbers(found: ast.expr, what: str, minimum: int) -> tuple[int, ...]:
    if isinstance(found, ast.Tuple | ast.List):
        return tuple(_number(element, what, minimum) for element in found.elts)
    return (_number(found, what, minimum),)


def _said(found: ast.expr) -> str:
    """An expression as a text."""
    try:
        return ast.unparse(found)
    except RecursionError:
        # The parser reads deeper nesting than ``unparse`` can write.
        return "..."


def _number(found: ast.expr, what: str, minimum: int) -> int:
    value = found.value if isinstance(found, ast.Constant) else None
    # ``isinstance`` would take True for 1.
    if type(value) is not int or not minimum <= value < _LARGEST:
        raise PadCallError(f"{what} has '{_said(found)}', expected a whole number of at least {minimum}")
    return value


def _name(found: ast.expr, what: str) -> str:
    """A name as it is, or in quotes where it is no identifier."""
    if isinstance(found, ast.Name):
        return found.id
    if isinstance(found, ast.Constant) and isinstance(found.value, str) and found.value:
        return found.value
    raise PadCallError(f"{what} is '{_said(found)}', expected a name")


def _mask_type(found: ast.expr | None) -> DataType:
    wire = "BOOL" if found is None else _name(found, "mask_type").removeprefix("TYPE_")
    dtype = BY_WIRE.get(wire)
    if dtype is None or dtype.is_bytes:
        raise PadCallError(f"mask_type is '{wire}', expected a type of numbers or BOOL, such as INT64")
    return dtype


def _scale(found: ast.expr) -> Fraction:
    # It brings the module of decimal numbers, and few models scale.
    from fractions import Fraction

    if isinstance(found, ast.BinOp) and isinstance(found.op, ast.Div):
        return Fraction(_number(found.left, "scale", 1), _number(found.right, "scale", 1))
    return Fraction(_number(found, "scale", 1))


def _value(found: ast.expr, dtype: DataType) -> Any:
    """The value of the padding as an element of the input's datatype."""
    sign = 1
    inner = found
    if isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.USub):
        sign, inner = -1, inner.operand
    if isinstance(inner, ast.Name) and sign == 1 and inner.id in ("true", "false"):
        value: Any = inner.id == "true"
    elif isinstance(inner, ast.Name) and inner.id in ("inf", "nan"):
        value = sign * float(inner.id)
    else:
        value = inner.value if isinstance(inner, ast.Constant) else None
        if sign == -1:
            value = -value if type(value) in (int, float) else None
    return _as_element(value, dtype, _said(found))


def _as_element(value: Any, dtype: DataType, text: str) -> Any:
    if dtype.is_bytes:
        return _fitting(lambda: _encoded(value), text, "a text in quotes")
    if dtype.wire == "BOOL":
        return _fitting(lambda: bool(value) if value in (0, 1) else None, text, "true or false")
    if dtype.numpy.kind in "iu":
        bits = 8 * dtype.itemsize
        low, high = (0, 2**bits - 1) if dtype.numpy.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        is_whole = type(value) is int and low <= value <= high
        return _fitting(lambda: value if is_whole else None, text, f"a whole number from {low} to {high}")
    is_number = type(value) in (int, float) and _holds(value, dtype)
    return _fitting(lambda: float(value) if is_number else None, text, "a number")


def _encoded(value: Any) -> bytes | None:
    try:
        return value.encode() if isinstance(value, str) else None
    except UnicodeEncodeError:
        # Half of a character, written as an escape.
        return None


def _holds(value: float, dtype: DataType) -> bool:
    """Whether a number stays finite in this type."""
    try:
        with np.errstate(over="ignore"):
            return not math.isfinite(value) or bool(np.isfinite(np.array(float(value)).astype(dtype.numpy)))
    except OverflowError:
        return False


def _fitting(make: Callable[[], _Read | None], text: str, expected: str) -> _Read:
    found = make()
    if found is None:
        raise PadCallError(f"the value is '{text}', expected {expected} for the datatype of the input")
    return found
