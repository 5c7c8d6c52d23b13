"""``ModelInferRequest`` messages of every kind, and what can be done to their bytes."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from naiad.config.messages import message_class

Request = message_class("ModelInferRequest")
Parameter = message_class("InferParameter")
Contents = message_class("InferTensorContents")

_texts = st.text(max_size=8)
_int64 = st.integers(-(2**63), 2**63 - 1)
_parameters = st.one_of(
    st.builds(Parameter),
    st.builds(Parameter, bool_param=st.booleans()),
    st.builds(Parameter, int64_param=_int64),
    st.builds(Parameter, string_param=_texts),
    st.builds(Parameter, double_param=st.floats(allow_nan=False)),
    st.builds(Parameter, uint64_param=st.integers(0, 2**64 - 1)),
)
_contents = st.one_of(
    st.builds(Contents, fp32_contents=st.lists(st.floats(width=32, allow_nan=False), max_size=4)),
    st.builds(Contents, int_contents=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4)),
    st.builds(Contents, bytes_contents=st.lists(st.binary(max_size=4), max_size=4)),
)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    """A request; what it says need not make sense."""
    message = Request(model_name=draw(_texts), model_version=draw(_texts), id=draw(st.text(max_size=150)))
    for name, parameter in draw(st.dictionaries(_texts, _parameters, max_size=2)).items():
        message.parameters[name].CopyFrom(parameter)
    for _ in range(draw(st.integers(0, 3))):
        given = message.inputs.add(name=draw(_texts), datatype=draw(_texts), shape=draw(st.lists(_int64, max_size=3)))
        if draw(st.booleans()):
            given.contents.CopyFrom(draw(_contents))
        for name, parameter in draw(st.dictionaries(_texts, _parameters, max_size=1)).items():
            given.parameters[name].CopyFrom(parameter)
    for _ in range(draw(st.integers(0, 2))):
        message.outputs.add(name=draw(_texts))
    message.raw_input_contents.extend(draw(st.lists(st.binary(max_size=200), max_size=3)))
    return message


PIECES = (
    b"", b"\x00", b"\x01", b"\x7f", b"\x80", b"\x80\x00", b"\xff", b"\xff" * 10, b"\x0a\x01m", b"\x12\x011",
    b"\x1a\x01\xff", b"\x22\x00", b"\x2a\x00", b"\x32\x00", b"\x3a\x00", b"\x3a\x04abcd", b"\x42\x00",
    b"\x0b\x0c", b"\x7b\x08\x01\x7c", b"\x38\x01", b"\x3d1234", b"\xc2\x3e\x00", b"\xed\xa0\x80", b"\x0c",
)  # fmt: skip
"""What is put into messages: fields, halves of fields, odd numbers and bytes that are no UTF-8."""


def spoil(raw: bytes, random: Random) -> bytes:
    """Some bytes replaced, added, left out or moved."""
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(raw))
        change = random.random()
        if change < 0.5:
            raw = raw[:at] + random.choice(PIECES) + raw[at + random.randint(0, 3) :]
        elif change < 0.7 and raw:
            at %= len(raw)
            raw = raw[:at] + bytes((random.randrange(256),)) + raw[at + 1 :]
        elif change < 0.8:
            raw = raw[:at]
        elif change < 0.9:
            raw = raw[at:] + raw[:at]
        else:
            raw = random.choice(PIECES) + raw
    return raw
