"""Tensors as base64 text: what the text stands for, and what each mistake in it is told."""

from __future__ import annotations

import base64
import importlib.util
import math
import sys
from types import ModuleType
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from naiad.errors import InternalError, MalformedRequestError
from naiad.tensor.dtypes import BY_WIRE
from naiad.wire.v2 import base64_text
from naiad.wire.v2.base64_text import base64_characters, decode_base64
from naiad.wire.v2.header import InputHeader


def without_pybase64() -> ModuleType:
    """The module as it is where pybase64 is not installed."""
    spec = importlib.util.find_spec(base64_text.__name__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # None makes the import fail.
    with mock.patch.dict(sys.modules, {"pybase64": None}):
        spec.loader.exec_module(module)
    return module


CODECS = [pytest.param(base64_text, id="pybase64"), pytest.param(without_pybase64(), id="standard library")]
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="


def header(text: str | None, wire: str = "UINT8", *shape: int) -> InputHeader:
    return InputHeader("A", BY_WIRE[wire], shape, math.prod(shape), None, None, None, text)


def refused(given: InputHeader, codec: ModuleType = base64_text) -> str:
    """What is said of the text, behind the name of its input."""
    with pytest.raises(MalformedRequestError, match=r"^Unable to parse 'data' of input 'A': ") as caught:
        codec.decode_base64(given)
    return str(caught.value).partition("'A': ")[2]


@pytest.mark.parametrize("codec", CODECS)
@given(st.binary(max_size=100))
@example(b"")
def test_bytes_come_back(codec: ModuleType, raw: bytes) -> None:
    text = codec.encode_base64(raw)
    assert codec.encode_base64(memoryview(raw)) == text
    assert text == base64.b64encode(raw)
    assert len(text) == base64_characters(len(raw))
    assert codec.decode_base64(header(text.decode(), "UINT8", len(raw))) == raw
    # Elements of BYTES have no size, so their number is not compared here.
    assert codec.decode_base64(header(text.decode(), "BYTES", 7)) == raw


@pytest.mark.parametrize("codec", CODECS)
@given(st.text(ALPHABET, max_size=12) | st.text(max_size=12))
def test_no_two_texts_stand_for_the_same_bytes(codec: ModuleType, text: str) -> None:
    try:
        raw = codec.decode_base64(header(text, "BYTES", 1))
    except MalformedRequestError:
        return
    assert base64.b64encode(raw).decode() == text


@given(st.binary(min_size=1, max_size=30), st.data())
def test_a_damaged_text_is_refused_or_another_tensor(raw: bytes, data: st.DataObject) -> None:
    text = base64.b64encode(raw).decode()
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.characters()) + text[at + data.draw(st.integers(0, 1)) :]
    try:
        found = decode_base64(header(damaged, "UINT8", len(raw)))
    except MalformedRequestError:
        return
    assert len(found) == len(raw)
    assert (found == raw) == (damaged == text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("AAA-AAAA", "'-' at character 3, expected letters, digits, '+', '/' and '=' at its end (the URL-safe"),
        ("AAAAA_AA", "'_' at character 5, expected letters, digits, '+', '/' and '=' at its end (the URL-safe"),
        ("AAAA\nAAA", "the base64 text has '\\n' at character 4, expected letters"),
        (" AAAAAAA", "' ' at character 0, expected letters"),
        ("AA==AAAA", "'=' at character 2, expected letters"),
        ("AAAAAAA\0", "'\\x00' at character 7"),
        ("AAAAé===", "'é' at character 4"),
        ("AAAAA===", "5 characters and 3 of padding ('='), expected whole groups of 4"),
        ("========", "0 characters and 8 of padding"),
        ("AAAAAAA", "7 characters and 0 of padding ('='), expected whole groups of 4"),
        ("AAAAAA=", "6 characters and 1 of padding"),
        ("AAAAAB==", "the last character of the base64 text, 'B', has bits beyond the last byte"),
        ("AAAAAAB=", "the last character of the base64 text, 'B', has bits beyond the last byte"),
    ],
)
@pytest.mark.parametrize(("wire", "shape"), [("UINT8", (2, 2)), ("BYTES", (1,)), ("FP64", (9,))])
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_no_base64(codec: ModuleType, text: str, problem: str, wire: str, shape: tuple[int, ...]) -> None:
    assert problem in refused(header(text, wire, *shape), codec)


@pytest.mark.parametrize(
    ("size", "wire", "shape", "wanted"),
    [
        (7, "FP32", (1, 2), "shape [1,2] of FP32 has 8 bytes, which are 12 characters of base64, found 12 for 7 bytes"),
        (9, "FP32", (2,), "shape [2] of FP32 has 8 bytes, which are 12 characters of base64, found 12 for 9 bytes"),
        (4, "INT16", (3,), "shape [3] of INT16 has 6 bytes, which are 8 characters of base64, found 8 for 4 bytes"),
        (0, "BOOL", (1,), "shape [1] of BOOL has 1 bytes, which are 4 characters of base64, found 0 for 0 bytes"),
        (3, "INT8", (0, 4), "shape [0,4] of INT8 has 0 bytes, which are 0 characters of base64, found 4 for 3 bytes"),
        (6, "FP16", (2**61,), "found 8 for 6 bytes"),
    ],
)
def test_a_length_against_the_shape(size: int, wire: str, shape: tuple[int, ...], wanted: str) -> None:
    text = base64.b64encode(bytes(size)).decode()
    assert refused(header(text, wire, *shape)).endswith(wanted)


@pytest.mark.parametrize("wire", ["BF16", "FP16", "FP64", "INT16", "BOOL"])
def test_every_datatype_is_its_bytes(wire: str) -> None:
    array = np.arange(6).astype(BY_WIRE[wire].numpy).reshape(2, 3)
    text = base64.b64encode(array.tobytes()).decode()
    assert decode_base64(header(text, wire, 2, 3)) == array.tobytes()


def test_an_input_without_text_is_no_mistake_of_the_caller() -> None:
    with pytest.raises(InternalError, match="input 'A' has no base64 text"):
        decode_base64(header(None))
