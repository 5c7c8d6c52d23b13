"""Tensors of strings that stay serialised mean the same as arrays, and what is wrong with them is found as well."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import InvalidArgumentError
from naiad.tensor.bytes_codec import check_strings, decode_bytes, encode_bytes
from naiad.tensor.packed_bytes import (
    PACKED_BYTES,
    PACKED_STRINGS,
    PackedStrings,
    packed_if_large,
    serialised,
    unpacked,
    with_unpacked,
)

PLACE = "inference input 'A' for model 'm'"
BLOCK = 1 << 20


def objects(elements: list[bytes], *shape: int) -> np.ndarray:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array.reshape(shape or -1)


def packed(array: np.ndarray) -> PackedStrings:
    return PackedStrings(memoryview(encode_bytes(array)), array.shape, PLACE)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.ravel().tolist() == other.ravel().tolist()


@given(st.lists(st.binary(max_size=6), max_size=12))
def test_numpy_sees_the_array(elements: list[bytes]) -> None:
    array = objects(elements)
    found = packed(array)
    assert (found.shape, found.size, found.ndim, found.dtype, len(found)) == (
        array.shape, array.size, 1, array.dtype, len(array),
    )  # fmt: skip
    assert same(np.asarray(found), array)
    assert same(np.concatenate([found, array]), np.concatenate([array, array]))
    assert list(found.flat) == elements
    assert found.nbytes == len(serialised(found)) == len(serialised(array))
    assert found.equals(packed(array)) and found.equals(found.copy())
    assert not found.equals(packed(objects([*elements, b""])))


@given(
    st.lists(st.lists(st.binary(max_size=5), min_size=3, max_size=3), max_size=8), st.integers(0, 9), st.integers(0, 9)
)
def test_rows_are_those_of_the_array(rows: list[list[bytes]], begin: int, end: int) -> None:
    array = objects([e for row in rows for e in row], len(rows), 3)
    for found in (packed(array), packed(array).reshape((len(rows), 3, 1))):
        part = found[begin:end]
        assert same(part.unpack().reshape(-1, 3), array[begin:end])
        assert same(part[1:2].unpack().reshape(-1, 3), array[begin:end][1:2])
    with pytest.raises(IndexError):
        packed(array)[::2]


def test_another_shape_has_as_many_elements() -> None:
    found = packed(objects([b"a", b"bc", b""]))
    assert same(found.reshape((3, 1)).unpack(), objects([b"a", b"bc", b""], 3, 1))
    assert found.reshape(-1).shape == (3,)
    with pytest.raises(ValueError, match="3 elements"):
        found.reshape((2, 2))


def test_what_is_large_is_packed() -> None:
    small, many, long = objects([b"a"] * 4, 2, 2), objects([b""] * PACKED_STRINGS), objects([b"x" * PACKED_BYTES])
    assert packed_if_large(small, PLACE) is small
    for array in (many, long, objects([b"n%d" % n for n in range(3000)], 30, 100)):
        found = packed_if_large(array, PLACE)
        assert isinstance(found, PackedStrings)
        assert same(unpacked(found), array)
        if array.ndim == 2:
            assert same(found[7:9].unpack(), array[7:9])
    numbers = np.zeros(PACKED_BYTES, np.float32)
    assert packed_if_large(numbers, PLACE) is numbers
    mixed = with_unpacked({"a": packed(small), "b": numbers})  # type: ignore[dict-item]
    assert same(mixed["a"], small) and mixed["b"] is numbers
    assert with_unpacked({"b": numbers})["b"] is numbers


LARGE = {
    "alike": [b"abc"] * 30_000,
    "various": [b"x" * (n % 90) for n in range(60_000)],
    "empty": [b""] * 20_000,
    "longer than a step": [b"1", b"y" * (3 * BLOCK), b"", b"z" * BLOCK, *[b"2"] * 9000],
    "one": [b"w" * (2 * BLOCK)],
}


@pytest.mark.parametrize("elements", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_large_ones_there_and_back(elements: list[bytes], kind: type) -> None:
    raw = kind(encode_bytes(objects(elements)))
    check_strings(raw, len(elements), PLACE)
    assert decode_bytes(raw, len(elements), PLACE).tolist() == elements


def problem_of(raw: bytes, elements: int) -> str:
    with pytest.raises(InvalidArgumentError) as checked:
        check_strings(raw, elements, PLACE)
    with pytest.raises(InvalidArgumentError) as decoded:
        decode_bytes(raw, elements, PLACE)
    assert str(checked.value) == str(decoded.value)
    return str(checked.value)


@pytest.mark.parametrize("elements", LARGE.values(), ids=LARGE)
def test_what_is_wrong_with_large_ones(elements: list[bytes]) -> None:
    raw, count = bytes(encode_bytes(objects(elements))), len(elements)
    last = len(elements[-1])
    assert problem_of(raw, count + 1) == f"expected {count + 1} string elements for {PLACE}, got {count}"
    assert (
        problem_of(raw, count - 1) == f"unexpected number of string elements {count} for {PLACE}, expecting {count - 1}"
    )
    assert problem_of(raw[: len(raw) - last - 1], count).startswith(f"incomplete string length indicator for {PLACE}")
    assert problem_of(raw + b"\1", count).startswith(f"unexpected number of string elements {count + 1}")
    if last:
        assert problem_of(raw[:-1], count) == (
            f"incomplete string data for {PLACE}, expecting string of length {last} but only {last - 1} bytes available"
        )
    # A shape that promises more than there could be costs nothing.
    assert problem_of(raw, 1 << 50) == f"expected {1 << 50} string elements for {PLACE}, got {count}"


@given(st.lists(st.binary(max_size=4), max_size=6), st.integers(0, 8), st.binary(max_size=6), st.data())
def test_checking_and_decoding_agree(elements: list[bytes], count: int, more: bytes, data: st.DataObject) -> None:
    raw = bytearray(encode_bytes(objects(elements))) + more
    if raw and data.draw(st.booleans()):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_bytes(raw, count, PLACE)
    except InvalidArgumentError as error:
        assert problem_of(bytes(raw), count) == str(error)
    else:
        check_strings(raw, count, PLACE)
        assert encode_bytes(found) == raw
