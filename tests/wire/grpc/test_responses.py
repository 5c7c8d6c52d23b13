"""Header blocks and frames of answers, read by independent readers."""

from __future__ import annotations

import struct
from urllib.parse import unquote

import hpack
import numpy as np
import pytest
from hyperframe.frame import Frame
from hypothesis import given
from hypothesis import strategies as st

from naiad.wire.grpc.responses import OPENING, closing, literal, only, opening, plain_http, whole_response
from naiad.wire.grpc.status import Status


def decoded(block: bytes) -> list[tuple[str, str]]:
    """The fields of a block; it must neither use nor change the table."""
    decoder = hpack.Decoder()
    found = [(str(name), str(value)) for name, value in decoder.decode(block)]
    assert not decoder.header_table.dynamic_entries
    return found


def test_openings() -> None:
    start = [(":status", "200"), ("content-type", "application/grpc")]
    assert decoded(OPENING) == decoded(opening("identity")) == start
    assert decoded(opening("gzip")) == [*start, ("grpc-encoding", "gzip")]
    assert decoded(opening("deflate")) == [*start, ("grpc-encoding", "deflate")]


@given(st.sampled_from(list(Status)), st.text(max_size=500))
def test_closings(code: Status, text: str) -> None:
    fields = decoded(closing(code, text))
    found = dict(fields)
    assert len(found) == len(fields)
    assert found["grpc-status"] == str(int(code))
    assert unquote(found.get("grpc-message", "")) == text.encode("utf-8", "replace").decode()
    assert ("grpc-message" in found) == bool(text)
    assert ("grpc-accept-encoding" in found) == (code == Status.UNIMPLEMENTED)
    assert decoded(only(code, text)) == decoded(OPENING) + fields


@pytest.mark.parametrize("status", [405, 415])
def test_plain_http(status: int) -> None:
    assert decoded(plain_http(status))[0] == (":status", str(status))


@given(st.binary(min_size=1, max_size=400), st.binary(max_size=400))
def test_literals(name: bytes, value: bytes) -> None:
    found = hpack.Decoder().decode(literal(name, value), raw=True)
    assert [(bytes(n), bytes(v)) for n, v in found] == [(name, value)]


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 254, 255, 256, 382, 383, 16_383, 16_384, 20_000])
def test_literals_of_every_length(size: int) -> None:
    found = hpack.Decoder(10**6).decode(literal(b"x" * max(1, size), b"y" * size), raw=True)
    assert [(bytes(n), bytes(v)) for n, v in found] == [(b"x" * max(1, size), b"y" * size)]


PARTS = st.lists(
    st.one_of(
        st.binary(max_size=100),
        st.binary(max_size=100).map(memoryview),
        st.lists(st.integers(0, 1000), max_size=20).map(lambda values: np.array(values, np.int32)),
        st.just(np.zeros((2, 3), np.float16)),
        st.just(np.array(5, np.int64)),
        st.just(np.empty((0, 3), np.float32)),
    ),
    max_size=6,
)


@given(st.integers(1, 2**31 - 1), PARTS)
def test_an_answer_in_one_piece(stream_id: int, parts: list[bytes]) -> None:
    message = b"".join(bytes(memoryview(part).tobytes()) for part in parts)
    raw = memoryview(whole_response(stream_id, parts, len(message)))
    frames = []
    while raw:
        found, size = Frame.parse_frame_header(raw[:9])
        found.parse_body(raw[9 : 9 + size])
        raw = raw[9 + size :]
        frames.append(found)
    first, data, last = frames
    assert [type(one).__name__ for one in frames] == ["HeadersFrame", "DataFrame", "HeadersFrame"]
    assert {one.stream_id for one in frames} == {stream_id}
    assert (set(first.flags), set(data.flags), set(last.flags)) == (
        {"END_HEADERS"},
        set(),
        {"END_HEADERS", "END_STREAM"},
    )
    assert data.data == struct.pack(">BI", 0, len(message)) + message
    decoder = hpack.Decoder()
    assert dict(decoder.decode(first.data)) == {":status": "200", "content-type": "application/grpc"}
    assert dict(decoder.decode(last.data)) == {"grpc-status": "0"}
