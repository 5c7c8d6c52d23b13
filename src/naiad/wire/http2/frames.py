"""HTTP/2 frames and error codes: their numbers, and how the small ones are written.

Source: RFC 9113, sections 4, 6 and 7.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD_BYTES: Final = 9
MAX_WINDOW: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME_BYTES: Final = 16_384
MAX_STREAM_ID: Final = 2**31 - 1

# Types of frames.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

# Flags.
ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20


class Setting(IntEnum):
    """The settings that the two sides exchange."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Http2ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Http2ConnectionError(Exception):
    """A violation of the protocol that ends the connection: ``code`` is the HTTP/2 error, the text is the finding."""

    def __init__(self, code: Http2ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Http2StreamError(Exception):
    """A violation of the protocol that ends one stream; the connection continues."""

    def __init__(self, code: Http2ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


frame_head = struct.Struct(">IBI")
"""A frame's head as (length << 8 | type), flags, stream id."""

_WINDOW_UPDATE = struct.Struct(">IBII")
_SETTING = struct.Struct(">HI")


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return frame_head.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def encode_settings(settings: Mapping[Setting, int]) -> bytes:
    """A SETTINGS frame."""
    return encode_frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in settings.items()))


def decode_settings(payload: bytes) -> list[tuple[int, int]]:
    """The entries of a SETTINGS frame, in their order, with the unknown ones.

    Raises:
        Http2ConnectionError: a value outside its range, or a length that is no multiple of six.
    """
    if len(payload) % 6:
        raise Http2ConnectionError(
            Http2ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes, not a multiple of 6"
        )
    entries = list(_SETTING.iter_unpack(payload))
    for key, value in entries:
        _check_setting(key, value)
    return entries


def _check_setting(key: int, value: int) -> None:
    # The error codes are those of section 6.5.2.
    if key == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
        raise Http2ConnectionError(Http2ErrorCode.FLOW_CONTROL_ERROR, f"SETTINGS_INITIAL_WINDOW_SIZE of {value}")
    if key == Setting.MAX_FRAME_SIZE and not DEFAULT_FRAME_BYTES <= value < 1 << 24:
        raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"SETTINGS_MAX_FRAME_SIZE of {value}")
    if key == Setting.ENABLE_PUSH and value > 1:
        raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"SETTINGS_ENABLE_PUSH of {value}")


def without_padding(payload: bytes, flags: int) -> bytes:
    """The content of a DATA or HEADERS frame, whose padding and priority are of no use to a client."""
    if not flags & (PADDED | HAS_PRIORITY):
        return payload
    padding = payload[0] if flags & PADDED else 0
    begin = bool(flags & PADDED) + (5 if flags & HAS_PRIORITY else 0)
    return payload[begin : len(payload) - padding]


def encode_window_update(stream_id: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame; stream 0 is the connection."""
    return _WINDOW_UPDATE.pack(4 << 8 | WINDOW_UPDATE, 0, stream_id, increment)


def encode_reset(stream_id: int, code: int) -> bytes:
    """A RST_STREAM frame."""
    return _WINDOW_UPDATE.pack(4 << 8 | RST_STREAM, 0, stream_id, code)


def encode_goaway(last_stream_id: int, code: int, reason: str = "") -> bytes:
    """A GOAWAY frame; ``reason`` is debug data."""
    return encode_frame(GOAWAY, 0, 0, struct.pack(">II", last_stream_id, code) + reason.encode()[:256])


def encode_ping(payload: bytes, ack: bool) -> bytes:
    """A PING frame with its eight bytes."""
    return encode_frame(PING, ACK if ack else 0, 0, payload)


SETTINGS_ACK: Final = encode_frame(SETTINGS, ACK, 0)


def frame_too_long(kind: int, length: int) -> Http2ConnectionError:
    """The error for a frame of more bytes than its kind may have."""
    return Http2ConnectionError(Http2ErrorCode.ENHANCE_YOUR_CALM, f"frame of type {kind} with {length} bytes")


def too_much_padding(padding: int, length: int) -> Http2ConnectionError:
    """The error for a frame that is shorter than the padding that it names."""
    return Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, f"padding of {padding} bytes in a frame of {length}")
