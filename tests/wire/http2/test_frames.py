"""Small frames as bytes, against an independent reader of frames."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hyperframe.frame import Frame
from hypothesis import given
from hypothesis import strategies as st

from naiad.wire.http2.frames import (
    MAX_WINDOW,
    Http2ConnectionError,
    Http2ErrorCode,
    Setting,
    decode_settings,
    encode_frame,
    encode_goaway,
    encode_ping,
    encode_reset,
    encode_settings,
    encode_window_update,
)


def parsed(raw: bytes) -> Any:
    found, size = Frame.parse_frame_header(memoryview(raw)[:9])
    assert len(raw) == 9 + size
    found.parse_body(memoryview(raw)[9:])
    return found


@given(st.integers(0, 2**31 - 1), st.integers(1, MAX_WINDOW))
def test_window_updates(stream_id: int, increment: int) -> None:
    found = parsed(encode_window_update(stream_id, increment))
    assert (type(found).__name__, found.stream_id) == ("WindowUpdateFrame", stream_id)
    assert found.window_increment == increment


@given(st.integers(1, 2**31 - 1), st.sampled_from(list(Http2ErrorCode)))
def test_resets(stream_id: int, code: Http2ErrorCode) -> None:
    found = parsed(encode_reset(stream_id, code))
    assert (type(found).__name__, found.stream_id, found.error_code) == ("RstStreamFrame", stream_id, code)


@given(st.integers(0, 2**31 - 1), st.sampled_from(list(Http2ErrorCode)), st.text(max_size=400))
def test_goaways(last: int, code: Http2ErrorCode, reason: str) -> None:
    found = parsed(encode_goaway(last, code, reason))
    assert (type(found).__name__, found.stream_id) == ("GoAwayFrame", 0)
    assert (found.last_stream_id, found.error_code) == (last, code)
    assert reason.encode().startswith(found.additional_data)
    assert len(found.additional_data) <= 256


@given(st.binary(min_size=8, max_size=8), st.booleans())
def test_pings(payload: bytes, ack: bool) -> None:
    found = parsed(encode_ping(payload, ack))
    assert (type(found).__name__, found.opaque_data, "ACK" in found.flags) == ("PingFrame", payload, ack)


@given(st.dictionaries(st.sampled_from(list(Setting)), st.integers(16_384, 65_535)))
def test_settings(settings: dict[Setting, int]) -> None:
    settings.pop(Setting.ENABLE_PUSH, None)
    raw = encode_settings(settings)
    found = parsed(raw)
    assert (type(found).__name__, found.settings) == ("SettingsFrame", settings)
    assert dict(decode_settings(raw[9:])) == settings


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=100))
def test_heads(kind: int, flags: int, stream_id: int, payload: bytes) -> None:
    raw = encode_frame(kind, flags, stream_id, payload)
    assert int.from_bytes(raw[:3], "big") == len(payload)
    assert (raw[3], raw[4], int.from_bytes(raw[5:9], "big"), raw[9:]) == (kind, flags, stream_id, payload)


def test_entries_keep_their_order_and_unknown_ones_stay() -> None:
    raw = struct.pack(">HIHIHI", 4, 1, 0xFFFF, 2**32 - 1, 4, 2)
    assert decode_settings(raw) == [(4, 1), (0xFFFF, 2**32 - 1), (4, 2)]


@pytest.mark.parametrize(
    ("key", "good", "bad", "code"),
    [
        (Setting.ENABLE_PUSH, [0, 1], [2, 2**32 - 1], Http2ErrorCode.PROTOCOL_ERROR),
        (Setting.INITIAL_WINDOW_SIZE, [0, 2**31 - 1], [2**31, 2**32 - 1], Http2ErrorCode.FLOW_CONTROL_ERROR),
        (Setting.MAX_FRAME_SIZE, [16_384, 2**24 - 1], [0, 16_383, 2**24], Http2ErrorCode.PROTOCOL_ERROR),
        (Setting.HEADER_TABLE_SIZE, [0, 2**32 - 1], [], Http2ErrorCode.NO_ERROR),
        (Setting.MAX_CONCURRENT_STREAMS, [0, 2**32 - 1], [], Http2ErrorCode.NO_ERROR),
        (Setting.MAX_HEADER_LIST_SIZE, [0, 2**32 - 1], [], Http2ErrorCode.NO_ERROR),
    ],
)
def test_ranges_of_settings(key: Setting, good: list[int], bad: list[int], code: Http2ErrorCode) -> None:
    for value in good:
        assert decode_settings(struct.pack(">HI", key, value)) == [(key, value)]
    for value in bad:
        with pytest.raises(Http2ConnectionError, match=str(value)) as caught:
            decode_settings(struct.pack(">HI", key, value))
        assert caught.value.code == code


@given(st.binary(max_size=50))
def test_settings_of_any_bytes(payload: bytes) -> None:
    try:
        assert len(decode_settings(payload)) * 6 == len(payload)
    except Http2ConnectionError as error:
        assert error.code in (
            Http2ErrorCode.FRAME_SIZE_ERROR,
            Http2ErrorCode.PROTOCOL_ERROR,
            Http2ErrorCode.FLOW_CONTROL_ERROR,
        )
