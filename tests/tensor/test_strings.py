"""BYTES on the wire: there and back, and every way in which it can be broken."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import InvalidArgumentError
from naiad.tensor.bytes_codec import decode_bytes, encode_bytes

PLACE = "inference input 'A' for model 'm'"


def objects(elements: list[bytes]) -> np.ndarray:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array


def test_encoding_is_a_length_and_the_bytes() -> None:
    assert encode_bytes(objects([b"ab", b"", b"\x00"])) == b"\x02\0\0\0ab" + b"\0\0\0\0" + b"\x01\0\0\0\0"


def test_encoding_is_row_major_whatever_the_layout() -> None:
    array = objects([b"1", b"2", b"3", b"4", b"5", b"6"]).reshape(2, 3)
    assert encode_bytes(array.T) == encode_bytes(objects([b"1", b"4", b"2", b"5", b"3", b"6"]))


@given(st.lists(st.binary(max_size=20), max_size=30), st.sampled_from([bytes, bytearray, memoryview]))
def test_round_trip(elements: list[bytes], kind: type) -> None:
    decoded = decode_bytes(kind(encode_bytes(objects(elements))), len(elements), PLACE)
    assert decoded.dtype == np.object_
    assert decoded.shape == (len(elements),)
    assert decoded.tolist() == elements
    assert all(type(e) is bytes for e in decoded)


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=8), st.data())
def test_cut_anywhere_it_is_an_error(elements: list[bytes], data: st.DataObject) -> None:
    raw = encode_bytes(objects(elements))
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(InvalidArgumentError, match="for inference input 'A' for model 'm'"):
        decode_bytes(raw[:cut], len(elements), PLACE)


@given(st.binary(max_size=64), st.integers(0, 10))
def test_arbitrary_bytes_are_decoded_or_refused(raw: bytes, elements: int) -> None:
    try:
        decoded = decode_bytes(raw, elements, PLACE)
    except InvalidArgumentError:
        return
    assert encode_bytes(decoded) == raw


@pytest.mark.parametrize(
    ("raw", "elements", "text"),
    [
        (b"\1\0\0\0a\1\0\0\0b", 1, "unexpected number of string elements 2 for {}, expecting 1"),
        (b"\1\0\0\0a", 0, "unexpected number of string elements 1 for {}, expecting 0"),
        (b"\1\0\0\0a", 2, "expected 2 string elements for {}, got 1"),
        (b"", 1, "expected 1 string elements for {}, got 0"),
        (
            b"\1\0\0",
            1,
            "incomplete string length indicator for {}, expecting 4 bytes but only 3 bytes available. Please make "
            "sure the string length indicator is in one buffer.",
        ),
        (
            b"\5\0\0\0abc",
            1,
            "incomplete string data for {}, expecting string of length 5 but only 3 bytes available",
        ),
        (
            b"\xff\xff\xff\xffabc",
            1,
            "incomplete string data for {}, expecting string of length 4294967295 but only 3 bytes available",
        ),
    ],
)
def test_error_texts(raw: bytes, elements: int, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        decode_bytes(raw, elements, PLACE)
    assert str(caught.value) == text.format(PLACE)


def test_a_promise_of_many_elements_costs_nothing() -> None:
    with pytest.raises(InvalidArgumentError):
        decode_bytes(struct.pack("<I", 0) * 3, 2**62, PLACE)


def test_elements_do_not_keep_the_body() -> None:
    body = bytearray(b"\2\0\0\0ab")
    decoded = decode_bytes(body, 1, PLACE)
    body[:] = b"zzzzzz"
    assert decoded.tolist() == [b"ab"]
