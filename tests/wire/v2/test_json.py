"""Tensors inside JSON, both ways, for every datatype."""

from __future__ import annotations

import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from naiad.errors import InternalError, InvalidArgumentError, MalformedRequestError
from naiad.tensor.dtypes import BY_WIRE, DATATYPES, DataType
from naiad.wire.json_text import MAX_NESTING
from naiad.wire.v2.header import InputHeader, parse_infer_header
from naiad.wire.v2.json import decode_data, encode_data

NUMERIC = [t for t in DATATYPES if t.in_json and not t.is_bytes]
INTEGERS = [t for t in NUMERIC if t.numpy.kind in "iu"]


def header(wire: str, data: list[Any], shape: tuple[int, ...] | None = None) -> InputHeader:
    shape = (len(data),) if shape is None else shape
    return InputHeader("A", BY_WIRE[wire], shape, math.prod(shape), data, None)


def decode(wire: str, data: list[Any], shape: tuple[int, ...] | None = None) -> np.ndarray:
    return decode_data(header(wire, data, shape))


def refused(wire: str, data: list[Any], shape: tuple[int, ...] | None = None) -> str:
    with pytest.raises(MalformedRequestError) as caught:
        decode(wire, data, shape)
    text = str(caught.value)
    assert text.startswith("Unable to parse 'data' of input 'A': ")
    text.encode()
    return text.removeprefix("Unable to parse 'data' of input 'A': ")


def arrays_of(dtype: DataType) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(dtype.numpy, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))


# There and back


@pytest.mark.parametrize("dtype", NUMERIC, ids=lambda t: t.wire)
@given(st.data())
def test_round_trip(dtype: DataType, data: st.DataObject) -> None:
    array = data.draw(arrays_of(dtype))
    flat = json.loads(encode_data(array, dtype, "X"))
    assert len(flat) == array.size
    decoded = decode_data(InputHeader("X", dtype, array.shape, array.size, flat, None))
    assert decoded.dtype == dtype.numpy
    np.testing.assert_array_equal(decoded, array)


@given(st.lists(st.text(max_size=6), max_size=8))
def test_round_trip_of_strings(texts: list[str]) -> None:
    try:
        raw = [t.encode() for t in texts]
    except UnicodeEncodeError:
        return
    array = decode("BYTES", list(texts))
    assert array.tolist() == raw
    assert json.loads(encode_data(array, BY_WIRE["BYTES"], "X")) == texts


@pytest.mark.slow
@given(st.data())
def test_any_nesting_is_flattened_row_major(data: st.DataObject) -> None:
    count = iter(range(1000))
    nested = data.draw(st.recursive(st.builds(lambda: next(count)), lambda inner: st.lists(inner, max_size=4)))
    whole = [nested]

    def flatten(value: Any) -> list[int]:
        return [x for v in value for x in flatten(v)] if isinstance(value, list) else [value]

    assert decode("INT32", whole, (len(flatten(whole)),)).tolist() == flatten(whole)


# Numbers


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda t: t.wire)
def test_integers_at_their_limits(dtype: DataType) -> None:
    info = np.iinfo(dtype.numpy.name)
    assert decode(dtype.wire, [info.min, info.max]).tolist() == [info.min, info.max]
    for outside in (info.min - 1, info.max + 1):
        text = refused(dtype.wire, [0, outside])
        assert text == f"{dtype.wire} holds {info.min} to {info.max}, found {outside} at element 1"


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda t: t.wire)
@pytest.mark.parametrize(("value", "shown"), [(1.0, "1.0"), (True, "true"), ("1", '"1"'), (None, "null")])
def test_integers_are_nothing_else(dtype: DataType, value: Any, shown: str) -> None:
    kind = "unsigned integers" if dtype.numpy.kind == "u" else "integers"
    assert refused(dtype.wire, [0, value]).startswith(f"{dtype.wire} takes {kind}, found {shown} at element 1 (")


def test_an_integer_beyond_64_bits() -> None:
    raw = b'{"inputs":[{"name":"A","shape":[1],"datatype":"INT64","data":[123456789012345678901234567890]}]}'
    with pytest.raises(MalformedRequestError, match=r"INT64 takes integers, found 1\.2345678901234568e"):
        decode_data(parse_infer_header(raw).inputs[0])


@pytest.mark.parametrize(
    ("wire", "data"),
    [("INT64", [10**30, math.nan]), ("BYTES", [10**30]), ("BOOL", [10**4000]), ("INT8", [10**4000])],
)
def test_a_very_long_integer_is_shown_short(wire: str, data: list[Any]) -> None:
    assert len(refused(wire, data)) < 150


@pytest.mark.parametrize("wire", ["FP32", "FP64"])
def test_floats_take_integers_and_bare_words(wire: str) -> None:
    values = decode(wire, [1, 2.5, math.inf, -math.inf, math.nan])
    assert values[:4].tolist() == [1.0, 2.5, math.inf, -math.inf]
    assert math.isnan(values[4])


@pytest.mark.parametrize(("wire", "data"), [("FP32", [3.5e38]), ("FP32", [10**39]), ("FP64", [10**400])])
def test_floats_that_would_become_infinite(wire: str, data: list[Any]) -> None:
    assert refused(wire, data) == f"a number is too large for {wire}"


def test_floats_round_as_the_datatype_does() -> None:
    assert decode("FP32", [0.1, 16777217]).tolist() == [float(np.float32(0.1)), 16777216.0]


@pytest.mark.parametrize(("value", "shown"), [("1", '"1"'), (True, "true"), (None, "null"), ({"a": 1}, "an object")])
def test_floats_are_nothing_else(value: Any, shown: str) -> None:
    text = f"FP32 takes numbers, found {shown} at element 1 (attempt to access JSON non-number as number)"
    assert refused("FP32", [1.5, value]) == text


@pytest.mark.parametrize("value", [0, 1, "true", None, 1.0])
def test_bool_is_nothing_else(value: Any) -> None:
    assert refused("BOOL", [True, value]).startswith("BOOL takes true or false, found ")


@pytest.mark.parametrize("value", [0, True, None, 1.5, {}])
def test_bytes_are_strings(value: Any) -> None:
    text = refused("BYTES", ["", value])
    assert text.startswith("BYTES takes strings, found ")
    assert text.endswith(" (attempt to access JSON non-string as string)")


def test_a_long_string_is_shown_short() -> None:
    assert len(refused("INT8", ["x" * 10_000])) < 150


def test_objects_nested_without_end_are_shown_short() -> None:
    deep: Any = {}
    for _ in range(900):
        deep = {"a": deep}
    assert refused("INT8", [deep]).startswith("INT8 takes integers, found an object at element 0 (")


def test_half_a_surrogate_pair() -> None:
    assert "surrogate" in refused("BYTES", ["\ud800"])


# Shapes


@pytest.mark.parametrize(("data", "shape"), [([1], (2,)), ([1, 2, 3], (2,)), ([[1], [2, 3]], (2, 2)), ([[]], (1,))])
def test_too_many_or_too_few(data: list[Any], shape: tuple[int, ...]) -> None:
    found = len([x for e in data for x in (e if isinstance(e, list) else [e])])
    dims = ",".join(map(str, shape))
    assert refused("INT32", data, shape) == (
        f"Shape does not match true shape of 'data' field: shape [{dims}] has {math.prod(shape)} elements, "
        f"found {found}"
    )


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]], [[1], 2, [[3, [4]]]], [[[1, 2, 3, 4]]]])
def test_even_and_uneven_data(data: list[Any]) -> None:
    assert decode("INT32", data, (2, 2)).tolist() == [[1, 2], [3, 4]]


def test_no_elements() -> None:
    assert decode("FP32", [], (0, 4)).shape == (0, 4)
    assert decode("BYTES", [[], []], (2, 0)).shape == (2, 0)


def test_a_shape_without_dimensions_holds_one_element() -> None:
    assert decode("FP32", [7], ()).shape == ()


def nested(depth: int, beside: list[Any]) -> list[Any]:
    value: list[Any] = [1]
    for _ in range(depth - 1):
        value = [*beside, value]
    return value


@pytest.mark.parametrize("beside", [[], [1]])
def test_nesting_has_a_limit(beside: list[Any]) -> None:
    count = 1 + (MAX_NESTING - 1) * len(beside)
    assert decode("INT8", nested(MAX_NESTING, beside), (count,)).size == count
    assert refused("INT8", nested(MAX_NESTING + 1, beside)) == (
        f"JSON nesting depth exceeds maximum allowed limit ({MAX_NESTING})"
    )


def test_deep_nesting_beside_many_numbers_is_read_once() -> None:
    """Time in proportion to the data: going through all of it again for every level would take 100 times as long."""
    data = [*[1] * 200_000, nested(MAX_NESTING - 1, [])]
    assert decode("INT8", data, (200_001,)).sum() == 200_001


# What does not travel in JSON


@pytest.mark.parametrize("wire", ["FP16", "BF16"])
def test_half_size_floats(wire: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        decode(wire, [1.0])
    assert str(caught.value) == (
        f"receiving {wire} data via JSON is not supported. Please use the binary data format for input A"
    )
    dtype = BY_WIRE[wire]
    with pytest.raises(InvalidArgumentError) as caught:
        encode_data(np.zeros(1, dtype.numpy), dtype, "X")
    assert str(caught.value) == (
        f"sending {wire} data via JSON is not supported. Please use the binary data format for output"
    )


def test_bytes_that_are_not_utf8_say_how_to_get_them() -> None:
    with pytest.raises(InvalidArgumentError, match=r"element 1 of output 'X' is not UTF-8.*binary_data"):
        encode_data(np.array([b"a", b"\xff"], object), BY_WIRE["BYTES"], "X")


def test_an_input_without_data_is_our_own_mistake() -> None:
    with pytest.raises(InternalError):
        decode_data(InputHeader("A", BY_WIRE["INT8"], (1,), 1, None, 1))


# How answers are written


@pytest.mark.parametrize(
    ("wire", "values", "text"),
    [
        ("BOOL", [True, False], b"[true,false]"),
        ("INT8", [-128, 127], b"[-128,127]"),
        ("UINT64", [2**64 - 1], b"[18446744073709551615]"),
        ("INT64", [-(2**63)], b"[-9223372036854775808]"),
        ("FP32", [1.0, 0.1], b"[1.0,0.1]"),
        ("FP64", [0.1, -1.5], b"[0.1,-1.5]"),
        ("FP64", [math.nan, math.inf, -math.inf, 0.5], b"[NaN,Infinity,-Infinity,0.5]"),
        ("FP32", [math.nan, 0.1, -math.inf], b"[NaN,0.1,-Infinity]"),
        ("BYTES", [b'a"b', "é".encode()], '["a\\"b","é"]'.encode()),
        ("FP32", [], b"[]"),
        ("BYTES", [], b"[]"),
    ],
)
def test_written_form(wire: str, values: list[Any], text: bytes) -> None:
    dtype = BY_WIRE[wire]
    assert encode_data(np.array(values, dtype.numpy), dtype, "X") == text


@pytest.mark.parametrize("wire", ["INT32", "FP32", "BOOL"])
def test_row_major_whatever_the_layout(wire: str) -> None:
    dtype = BY_WIRE[wire]
    array = (np.arange(24) % 2 if wire == "BOOL" else np.arange(24)).astype(dtype.numpy).reshape(4, 6)
    for view in (array.T, array[::2, ::-1], np.asfortranarray(array), array[1]):
        assert json.loads(encode_data(view, dtype, "X")) == view.ravel().tolist()


def test_bfloat16_is_what_the_table_says() -> None:
    assert BY_WIRE["BF16"].numpy == ml_dtypes.bfloat16
