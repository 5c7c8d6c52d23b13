"""Single fields of protobuf messages, against protobuf itself."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.messages import message_class
from naiad.wire.proto_fields import field, field_head, has_more_fields, read_varint, varint

Request = message_class("ModelInferRequest")
Contents = message_class("InferTensorContents")


@given(st.integers(0, 2**64 - 1))
def test_a_varint_is_what_protobuf_writes(number: int) -> None:
    written = Contents(uint64_contents=[number]).SerializeToString()
    assert varint(number) == written[2:]
    assert read_varint(written, 2) == (number, len(written))


def test_a_varint_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="ten bytes"):
        read_varint(b"\xff" * 11, 0)
    with pytest.raises(IndexError):
        read_varint(b"\xff", 0)


@given(st.binary(max_size=300))
def test_a_field_is_what_protobuf_writes(value: bytes) -> None:
    assert field(7, value) == (Request(raw_input_contents=[value]).SerializeToString() if value else b"")
    assert field_head(7, len(value)) + value == Request(raw_input_contents=[value]).SerializeToString()


@pytest.mark.parametrize(
    "raw",
    [
        b"\x2a\x00",
        b"\x0a\x01a",
        b"\x38\x05",
        b"\x3d1234",
        b"\x3912345678",
        b"\xfa\x01\x02ab",
        b"\x7b\x08\x01\x7c",
    ],
)
def test_fields_of_every_wire_type_are_counted(raw: bytes) -> None:
    Request.FromString(raw * 3)
    count = 3 * (3 if raw[0] == 0x7B else 1)
    assert has_more_fields(raw * 3, count - 1)
    assert not has_more_fields(raw * 3, count)


@given(st.binary(max_size=60))
def test_what_is_no_message_has_few_fields(raw: bytes) -> None:
    has_more_fields(memoryview(raw), 5)
    try:
        message = Request.FromString(raw)
    except DecodeError:
        return
    known = len(message.inputs) + len(message.outputs) + len(message.parameters) + len(message.raw_input_contents)
    assert known <= 0 or has_more_fields(raw, known - 1)
