"""Answers as bytes: they come back as they were, and nothing else is taken for one."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from naiad.cache.packed import MAGIC, MAX_VALUE, UnreadableValueError, pack, unpack
from naiad.request import Array, Outputs, RequestOptions
from naiad.tensor.dtypes import DATATYPES
from naiad.tensor.packed_bytes import PACKED_STRINGS
from support.loaded_models import spec, tensor

SPEC = spec(outputs=(tensor("y", dims=(-1,)), tensor("s", "BYTES", (2,))))
TERMS = RequestOptions(("y", "s"), 1)
Y = np.array([[1, 2]], np.float32)
S = np.array([[b"ab", b""]], np.object_)


def same(found: Mapping[str, Array], expected: Mapping[str, Array]) -> bool:
    return found.keys() == expected.keys() and all(
        # Many strings come as one block of bytes.
        found[n].dtype == a.dtype and found[n].shape == a.shape and np.asarray(found[n]).tolist() == a.tolist()
        for n, a in expected.items()
    )


def packed(outputs: Mapping[str, Array]) -> bytes:
    value = pack(outputs, SPEC, 1)
    assert value is not None
    return value


def test_an_answer_comes_back_as_it_was() -> None:
    found = unpack(packed({"y": Y, "s": S}), SPEC, TERMS)
    assert same(found, {"y": Y, "s": S})
    assert type(found) is dict
    assert not any(array.flags.writeable for array in found.values())


def test_many_strings_come_back() -> None:
    many = np.array([b"%d" % n for n in range(PACKED_STRINGS)], np.object_).reshape(4, -1)
    assert same(unpack(packed({"y": many}), SPEC, TERMS), {"y": many})


@pytest.mark.parametrize("dtype", DATATYPES, ids=lambda d: d.wire)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_every_datatype_and_shape(dtype: object, data: st.DataObject) -> None:
    shape = data.draw(nps.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    if dtype.is_bytes:  # type: ignore[attr-defined]
        elements = data.draw(
            st.lists(st.binary(max_size=8), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
        )
        array = np.empty(len(elements), np.object_)
        array[:] = elements
        array = array.reshape(shape)
    else:
        array = np.zeros(shape, dtype.numpy)  # type: ignore[attr-defined]
        if dtype.numpy != ml_dtypes.bfloat16:  # type: ignore[attr-defined]
            array.ravel()[:1] = 1
    outputs = Outputs({"y": array}, {"a": 1, "b": "text", "c": True, "d": 0.5})
    found = unpack(packed(outputs), SPEC, TERMS)
    assert same(found, outputs)
    assert isinstance(found, Outputs)
    assert found.parameters == outputs.parameters


def test_what_differs_from_the_configuration_is_said_to_differ() -> None:
    for odd in ({"y": Y.astype(np.float64)}, {"y": np.zeros((2, 2), np.float32)}, {"y": Y.ravel()}):
        assert isinstance(unpack(packed(odd), SPEC, TERMS), Outputs)


def test_what_is_too_large_is_not_kept() -> None:
    assert pack({"y": np.zeros((1, MAX_VALUE), np.uint8)}, SPEC, 1) is None


def test_an_answer_to_another_request_is_none() -> None:
    value = packed({"y": Y, "s": S})
    with pytest.raises(UnreadableValueError, match="was not asked for"):
        unpack(value, SPEC, RequestOptions(("y",), 1))
    with pytest.raises(UnreadableValueError, match="none of the model's"):
        unpack(value, SPEC, RequestOptions(("y", "s"), 2))


def crafted(head: object, data: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else orjson.dumps(head)
    return MAGIC + struct.pack("<I", len(text)) + text + data


def one(
    name: object, wire: object, shape: object, size: object, plain: object = False, parameters: object = None
) -> object:
    return {
        "plain": plain,
        "parameters": {} if parameters is None else parameters,
        "tensors": [[name, wire, shape, size]],
    }


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        MAGIC,
        MAGIC + b"\xff\xff\xff\xff",
        crafted(b"{"),
        crafted([]),
        crafted({}),
        crafted({"plain": True, "parameters": {}, "tensors": 5}),
        crafted({"plain": True, "parameters": {}, "tensors": [[]]}),
        crafted(b"[" * 50_000),
        crafted(one("z", "FP32", [1, 1], 4), b"1234"),
        crafted(one("y", "FP33", [1, 1], 4), b"1234"),
        crafted(one("y", ["FP32"], [1, 1], 4), b"1234"),
        crafted(one("y", "FP32", [1, 1], 5), b"12345"),
        crafted(one("y", "FP32", [1, 1], -4), b"1234"),
        crafted(one("y", "FP32", [1, 1], 4.0), b"1234"),
        crafted(one("y", "FP32", [-1, -1], 4), b"1234"),
        crafted(one("y", "FP32", [True], 4), b"1234"),
        crafted(one("y", "FP32", [2**39, 2**39], 4), b"1234"),
        crafted(one("y", "FP32", [2**62, 0], 0)),
        crafted(one("y", "FP32", [0] * 100, 0)),
        crafted(one("y", "FP32", "11", 4), b"1234"),
        crafted(one("y", "FP32", [1, 1], 4), b"12345"),
        crafted(one("y", "FP32", [1, 1], 4), b"123"),
        crafted(one("y", "FP32", [1, 1], 4, parameters=[1]), b"1234"),
        crafted(one("y", "FP32", [1, 1], 4, parameters={"a": {}}), b"1234"),
        crafted(one("y", "FP64", [1, 1], 8, plain=True), b"12345678"),
        crafted(one("y", "BOOL", [1, 1], 1), b"\2"),
        crafted(one("s", "BYTES", [2**30], 4), b"\0\0\0\0"),
        crafted(one("s", "BYTES", [1], 4), b"\xff\xff\xff\xff"),
        crafted(one("s", "BYTES", [1], 8), bytes(8)),
    ],
)
def test_what_is_no_answer_is_unreadable(value: bytes) -> None:
    with pytest.raises(UnreadableValueError):
        unpack(value, SPEC, TERMS)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_value_is_unreadable_or_a_whole_answer(data: st.DataObject) -> None:
    value = bytearray(packed({"y": Y, "s": S}))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(value)))
    try:
        found = unpack(bytes(value[:cut]), SPEC, TERMS)
    except UnreadableValueError:
        return
    assert found.keys() <= {"y", "s"}
    assert all(isinstance(array, np.ndarray) for array in found.values())
