"""Tensors inside JSON: a ``data`` list to an array, and an array to a ``data`` list.

Source: protocol section "Tensor Data", and the reference's parser, which flattens any nesting in row-major order.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import numpy as np
import orjson

from naiad.errors import InternalError, InvalidArgumentError, MalformedRequestError
from naiad.request import Array, request_label
from naiad.tensor.bytes_codec import string_array
from naiad.tensor.dtypes import DataType
from naiad.tensor.packed_bytes import unpacked
from naiad.wire.json_text import MAX_NESTING, TOO_DEEP
from naiad.wire.v2.header import MAX_ELEMENTS, InputHeader, check_in_json

_EXPECTED = {"b": "true or false", "i": "integers", "u": "unsigned integers", "f": "numbers", "O": "strings"}
_KINDS = {"b": "boolean", "i": "signed-integer", "u": "unsigned-integer", "f": "number", "O": "string"}
_ALLOWED: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}, "O": {str}}


def decode_data(header: InputHeader, model: str = "", request_id: str = "") -> Array:
    """The ``data`` of one input as an array of its shape; ``model`` and ``request_id`` are for errors.

    Raises:
        InvalidArgumentError: FP16 and BF16 cannot travel in JSON, or no memory could hold the shape.
        MalformedRequestError: wrong number or type of elements, or a value outside the datatype's range.
    """
    if header.data is None:
        raise InternalError(f"input '{header.name}' has no JSON data")
    dtype = header.dtype
    check_in_json(dtype, header.name)
    flat, kinds = _flatten(header.data, header.name)
    if len(flat) != header.elements and not dtype.is_bytes:
        raise _wrong_count(header, len(flat))
    wanted = dtype.numpy.kind
    if not kinds <= _ALLOWED[wanted]:
        raise _wrong_kind(flat, header, wanted)
    if dtype.is_bytes:
        place = f"inference input '{header.name}'" + (f" for model '{model}'" if model else "")
        encoded = [_encode_utf8(e, header.name) for e in flat]
        try:
            strings = string_array(encoded, header.elements, place)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(request_label(request_id) + str(error)) from None
        return strings.reshape(header.shape)
    return _to_array(flat, header).reshape(header.shape)


def _wrong_count(header: InputHeader, found: int) -> InvalidArgumentError:
    """The error for data that do not fill their shape, of which no data could fill the largest."""
    size = header.dtype.numpy.itemsize
    if header.elements > MAX_ELEMENTS // size:
        return InvalidArgumentError(
            f"byte size overflow for input '{header.name}': element count ({header.elements}) * data type size "
            f"({size}) exceeds maximum allowed size ({MAX_ELEMENTS})"
        )
    return MalformedRequestError(
        f"Unable to parse 'data' of input '{header.name}': Shape does not match true shape of 'data' field: shape "
        f"{_dims(header.shape)} has {header.elements} elements, found {found}"
    )


def _flatten(data: list[Any], name: str) -> tuple[list[Any], set[type]]:
    """All the elements in row-major order, and the set of their types."""
    kinds = set(map(type, data))
    depth = 1
    # A level at a time, which leaves the loop over the elements to C.
    while kinds == {list}:
        depth += 1
        if depth > MAX_NESTING:
            raise _too_deep(name)
        data = list(chain.from_iterable(data))
        kinds = set(map(type, data))
    if list in kinds:
        data = _flatten_uneven(data, name, depth)
        kinds = set(map(type, data))
    return data, kinds


def _flatten_uneven(data: list[Any], name: str, depth: int) -> list[Any]:
    """Numbers and lists side by side: each element is visited once, however deep its neighbours are nested."""
    flat: list[Any] = []
    levels = [iter(data)]
    while levels:
        for element in levels[-1]:
            if type(element) is list:
                if depth + len(levels) > MAX_NESTING:
                    raise _too_deep(name)
                levels.append(iter(element))
                break
            flat.append(element)
        else:
            levels.pop()
    return flat


def _too_deep(name: str) -> MalformedRequestError:
    return MalformedRequestError(f"Unable to parse 'data' of input '{name}': {TOO_DEEP}")


def _wrong_kind(flat: list[Any], header: InputHeader, wanted: str) -> MalformedRequestError:
    index = next(i for i, e in enumerate(flat) if type(e) not in _ALLOWED[wanted])
    return MalformedRequestError(
        f"Unable to parse 'data' of input '{header.name}': {header.dtype.wire} takes {_EXPECTED[wanted]}, found "
        f"{_short(flat[index])} at element {index} (attempt to access JSON non-{_KINDS[wanted]} as {_KINDS[wanted]})"
    )


def _short(value: Any) -> str:
    """A JSON value as text, cut where it would be long."""
    text = "an object" if isinstance(value, dict) else json.dumps(value)
    return text if len(text) <= 40 else text[:40] + "..."


def _to_array(flat: list[Any], header: InputHeader) -> Array:
    dtype = header.dtype
    try:
        if dtype.numpy.kind != "f":
            # Since numpy 2 a Python integer outside the range of the dtype raises instead of wrapping around.
            return np.array(flat, dtype.numpy)
        # Through FP64, where an overflow of the datatype can be told from an Infinity of the caller.
        wide = np.array(flat, np.float64)
    except (OverflowError, ValueError):
        raise _out_of_range(flat, header) from None
    # An overflow is an error below; numpy would only warn.
    with np.errstate(over="ignore"):
        narrow = wide.astype(dtype.numpy, copy=False)
    if not np.isfinite(narrow).all() and (np.isinf(narrow) & ~np.isinf(wide)).any():
        raise _out_of_range(flat, header)
    return narrow


def _encode_utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MalformedRequestError(
            f"Unable to parse 'data' of input '{name}': a string holds half of a surrogate pair"
        ) from None


def _out_of_range(flat: list[Any], header: InputHeader) -> MalformedRequestError:
    if header.dtype.numpy.kind not in "iu":
        return MalformedRequestError(
            f"Unable to parse 'data' of input '{header.name}': a number is too large for {header.dtype.wire}"
        )
    info = np.iinfo(header.dtype.numpy.name)
    index, value = next((i, e) for i, e in enumerate(flat) if not info.min <= e <= info.max)
    return MalformedRequestError(
        f"Unable to parse 'data' of input '{header.name}': {header.dtype.wire} holds {info.min} to {info.max}, "
        f"found {_short(value)} at element {index}"
    )


def encode_data(array: Array, dtype: DataType, name: str) -> bytes:
    """An array as a flat JSON list, row-major.

    Raises:
        InvalidArgumentError: FP16 and BF16, and BYTES that are not UTF-8, cannot travel in JSON.
    """
    if not dtype.in_json:
        raise InvalidArgumentError(
            f"sending {dtype.wire} data via JSON is not supported. Please use the binary data format for output"
        )
    if dtype.is_bytes:
        return orjson.dumps([_decode_utf8(e, i, name) for i, e in enumerate(unpacked(array).ravel().tolist())])
    return encode_numbers(array)


def encode_numbers(array: Array) -> bytes:
    """An array of numbers or booleans, none of them FP16 or BF16, as a flat JSON list, row-major."""
    flat = array.ravel()
    text = orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    # A null, which alone has the letter n, stands for a number that is not finite; true and false do not have it.
    return _with_bare_words(flat, text) if b"n" in text else text


def _with_bare_words(flat: Array, text: bytes) -> bytes:
    """Numbers with NaN and Infinity, for which orjson writes null; the reference writes words that the clients read."""
    # Cut at single bytes, which is several times as fast as to replace a word.
    first, *others = text.split(b"n")
    values = flat[~np.isfinite(flat)].tolist()
    words = [b"NaN" if value != value else b"Infinity" if value > 0 else b"-Infinity" for value in values]
    return first + b"".join([word + other[len("ull") :] for word, other in zip(words, others, strict=True)])


def _decode_utf8(element: bytes, index: int, name: str) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError(
            f"element {index} of output '{name}' is not UTF-8 and cannot be sent in JSON: ask for it with "
            '"parameters": {"binary_data": true}'
        ) from None


def _dims(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
