"""Typed contents read from the bytes of a message mean what protobuf says that they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.packed_bytes import PackedStrings
from naiad.wire.proto_fields import field, field_head, varint
from naiad.wire.v2.contents import KINDS
from naiad.wire.v2.long_contents import (
    LONG_BYTES,
    LONG_NUMBERS_BYTES,
    LONG_STRINGS_BYTES,
    MANY_STRINGS,
    has_long_contents,
    read_contents,
)
from support.infer_requests import Contents, Request

_int64 = st.integers(-(2**63), 2**63 - 1)
LISTS = {
    "bool_contents": st.booleans(),
    "int_contents": st.integers(-(2**31), 2**31 - 1),
    "int64_contents": _int64,
    "uint_contents": st.integers(0, 2**32 - 1),
    "uint64_contents": st.integers(0, 2**64 - 1),
    "fp32_contents": st.floats(width=32, allow_nan=False),
    "fp64_contents": st.floats(allow_nan=False),
    "bytes_contents": st.one_of(st.binary(max_size=3), st.just(b"k" * 130)),
}
_contents = st.dictionaries(st.sampled_from(sorted(LISTS)), st.none(), max_size=3).flatmap(
    lambda names: st.fixed_dictionaries({name: st.lists(LISTS[name], max_size=5) for name in names})
)
_unknown = st.sampled_from(
    [
        b"",
        field(15, b"abc"),
        varint(12 << 3) + varint(300),
        varint(9 << 3 | 1) + bytes(8),
        varint(9 << 3 | 5) + bytes(4),
        varint(11 << 3 | 3) + field(8, b"in a group") + varint(11 << 3 | 4),
        # Not of the type that the list has.
        varint(8 << 3) + varint(7),
        # A tag that is longer than it need be, and numbers that are not packed.
        b"\xc2\x00\x02hi",
        varint(2 << 3) + varint(2**64 - 5),
        varint(6 << 3 | 5) + np.float32(0.5).tobytes(),
    ]
)


def assert_alike(message: bytes) -> None:
    """Against protobuf: the lists, and what is left of the message."""
    wanted = Request.FromString(message)
    found = read_contents(message)
    left = Request.FromString(found.message)
    assert len(found.inputs) == len(wanted.inputs)
    for given_, values in zip(wanted.inputs, found.inputs, strict=True):
        assert (values is not None) == given_.HasField("contents")
        if values is None:
            continue
        filled = tuple(n for n in KINDS if len(getattr(given_.contents, n)))
        name = filled[0] if filled else ""
        elements: list[Any] = list(getattr(given_.contents, name)) if name else []
        assert (values.filled, values.size) == (filled, len(elements))
        if name == "bytes_contents":
            assert decode_bytes(values.data, values.size, "it").tolist() == elements
        elif name:
            assert values.data.tolist() == elements
        given_.contents.Clear()
        given_.contents.SetInParent()
    wanted.raw_input_contents[:] = [b""] * len(wanted.raw_input_contents)
    assert left == wanted


@given(
    st.lists(st.tuples(st.none() | _contents, _unknown, st.booleans()), max_size=3),
    st.lists(st.binary(max_size=3), max_size=2),
)
def test_the_same_as_protobuf(inputs: list[Any], raws: list[bytes]) -> None:
    whole = Request(model_name="m", id="7", raw_input_contents=raws).SerializeToString()
    for lists, unknown, is_split in inputs:
        described = field(1, b"A") + field(2, b"BYTES")
        if lists is not None:
            contents = Contents(**lists).SerializeToString()
            described += field_head(5, len(contents + unknown)) + contents + unknown
            if is_split:
                described += field_head(5, len(unknown + contents)) + unknown + contents
        whole += field_head(5, len(described)) + described + field(4, b"")
    assert_alike(whole)


@given(_contents, _unknown, st.data())
def test_cut_or_damaged_it_is_an_error_or_the_same(lists: Any, unknown: bytes, data: st.DataObject) -> None:
    contents = Contents(**lists).SerializeToString() + unknown
    described = field(1, b"A") + field_head(5, len(contents)) + contents
    whole = bytearray(field_head(5, len(described)) + described)
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole = whole[:at]
    else:
        whole[at] = data.draw(st.integers(0, 255))
    has_long_contents(whole)
    try:
        found = read_contents(bytes(whole))
        left = Request.FromString(found.message)
        wanted = Request.FromString(bytes(whole))
    except (ValueError, DecodeError):
        return
    assert len(left.inputs) == len(wanted.inputs) == len(found.inputs)


def message(kind: str, elements: Any, **more: Any) -> bytes:
    made = Request(model_name="m", **more)
    made.inputs.add(name="A", datatype="X", shape=[len(elements)]).contents.CopyFrom(Contents(**{kind: elements}))
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(
    ("kind", "elements"),
    [
        ("bytes_contents", [b"x" * (n % 200) for n in range(30_000)]),
        ("bytes_contents", [b"abc"] * 500_000),
        ("bytes_contents", [*[b"abc"] * 400_000, b"abcd", *[b"abc"] * 10]),
        ("bytes_contents", [b"1", b"y" * (3 << 20), *[b"z" * (1 << 20)] * 3, b""]),
        ("int_contents", list(range(-300_000, 300_000))),
        ("uint64_contents", list(range(0, 2**64, 2**46))),
        ("fp64_contents", [n / 3 for n in range(1000)]),
    ],
    ids=["various", "alike", "nearly alike", "longer than a step", "int", "uint64", "fp64"],
)
def test_large_contents(kind: str, elements: list[Any]) -> None:
    assert_alike(message(kind, elements))


def test_strings_become_a_packed_tensor() -> None:
    (values,) = read_contents(message("bytes_contents", [b"a", b"bc"])).inputs
    assert values is not None
    assert PackedStrings(values.data, (2,), "it").unpack().tolist() == [b"a", b"bc"]


@pytest.mark.parametrize(
    ("kind", "count", "element", "is_long"),
    [
        ("bytes_contents", LONG_STRINGS_BYTES, b"", True),
        ("bytes_contents", MANY_STRINGS - 1, b"s" * 100, False),
        ("bytes_contents", MANY_STRINGS + 1, b"s" * 100, True),
        ("bytes_contents", 1, b"s" * LONG_BYTES, True),
        ("bytes_contents", 100, b"s", False),
        ("int_contents", LONG_NUMBERS_BYTES, 1, True),
        ("int_contents", LONG_NUMBERS_BYTES // 2, 1, False),
        ("fp32_contents", LONG_BYTES // 8, 1.0, False),
        ("fp32_contents", LONG_BYTES // 4, 1.0, True),
    ],
)
def test_what_is_long(kind: str, count: int, element: Any, is_long: bool) -> None:
    assert has_long_contents(message(kind, [element] * count)) is is_long


def test_many_inputs_are_long_together() -> None:
    made = Request()
    for n in range(100):
        made.inputs.add(name=f"I{n}").contents.int_contents.extend([1] * (LONG_NUMBERS_BYTES // 50))
    assert has_long_contents(made.SerializeToString())


def test_raw_tensors_are_not_long() -> None:
    assert not has_long_contents(Request(raw_input_contents=[bytes(1 << 22)]).SerializeToString())


def test_very_many_fields_are_left_to_the_thread() -> None:
    fields = field(15, b"a") * 5000
    whole = field_head(5, len(fields)) + fields
    assert has_long_contents(whole * 8)
    assert_alike(whole * 8)
