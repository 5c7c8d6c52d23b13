"""Responses of HTTP/1.1 as they arrive, and what they say."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final, NamedTuple

import orjson

from naiad.bounded_dict import BoundedDict
from naiad.client.errors import ConnectionFailedError, ResponseError
from naiad.client.protocol import PlainRequest
from naiad.client.region import PlacedTensors
from naiad.client.result import InferResult, read_result
from naiad.wire.http1.chunked import ChunkedDecoder

_MAX_HEAD_BYTES: Final = 1 << 16
_MAX_BODY_BYTES: Final = 1 << 40
_MAX_HEADS: Final = 256
_HEADER_LENGTH: Final = "inference-header-content-length"
_LINE: Final = re.compile(rb"\r\n([^:\r\n]+):[ \t]*([^\r\n]*)")


class ResponseHead(NamedTuple):
    """Status and headers; ``length`` is that of the body, None where its end is in the body or in the connection."""

    status: int
    length: int | None
    header_length: int | None
    is_chunked: bool
    closes: bool
    fields: dict[str, str]


class WholeResponse(NamedTuple):
    """A response that has arrived."""

    head: ResponseHead
    body: bytes

    @property
    def closes(self) -> bool:
        """Whether the connection ends with it."""
        return self.head.closes

    def result(self, placed: PlacedTensors | None = None) -> InferResult:
        """The outputs in it; arguments and errors as ``read_result``."""
        header_length = self.head.header_length
        return read_result(self.body, len(self.body) if header_length is None else header_length, placed)

    def read(self, question: PlainRequest) -> Any:
        """The body; None for an empty one."""
        return orjson.loads(self.body) if self.body else None

    def agrees(self, question: PlainRequest) -> bool:
        """Whether it is a success."""
        return self.head.status < 300

    def checked(self) -> WholeResponse:
        """The response itself.

        Raises:
            ResponseError: it is an error.
        """
        if self.head.status >= 300:
            retry_after_s = 0.0
            with suppress(ValueError):
                retry_after_s = max(0.0, float(self.head.fields.get("retry-after", "0")))
            raise ResponseError(self.head.status, _error_text(self), retry_after_s)
        return self


def _error_text(response: WholeResponse) -> str:
    try:
        found = orjson.loads(response.body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = response.body[:1000].decode("utf-8", "replace").strip()
        found = f"HTTP status {response.head.status}" + (f": {text}" if text else "")
    return str(found)


_heads: dict[bytes, ResponseHead] = BoundedDict(_MAX_HEADS)


class ClientResponseReader:
    """Reads one response, piece by piece.

    Attributes:
        has_begun: whether anything of it has arrived.
    """

    __slots__ = ("_chunks", "_head", "_received", "has_begun")

    def __init__(self) -> None:
        self._received = bytearray()
        self._head: ResponseHead | None = None
        self._chunks: ChunkedDecoder | None = None
        self.has_begun = False

    def feed(self, data: bytes) -> WholeResponse | None:
        """Take what has arrived; the response once it is whole.

        Raises:
            ConnectionFailedError: it is no response.
        """
        self.has_begun = True
        if self._head is None:
            received = data if not self._received else bytes(self._received) + data
            end = received.find(b"\r\n\r\n") + 4
            if end < 4:
                if len(received) > _MAX_HEAD_BYTES:
                    raise _not_http(received)
                self._received = bytearray(received)
                return None
            self._head = head = read_head(received[:end])
            if head.status < 200:
                self._head, self._received = None, bytearray()
                return self.feed(received[end:]) if len(received) > end else None
            # The usual case: all of it has come at once.
            if head.length == len(received) - end:
                return WholeResponse(head, received[end:])
            self._received = bytearray()
            self._chunks = ChunkedDecoder(_MAX_BODY_BYTES) if head.is_chunked else None
            data = received[end:]
        return self._take_body(self._head, data)

    def _take_body(self, head: ResponseHead, data: bytes) -> WholeResponse | None:
        if self._chunks is not None:
            self._chunks.feed(memoryview(data))
            return WholeResponse(head, bytes(self._chunks.body)) if self._chunks.done else None
        self._received += data
        if head.length is not None and len(self._received) >= head.length:
            return WholeResponse(head, bytes(self._received))
        return None

    def end(self) -> WholeResponse | None:
        """The connection has ended; the response, if that makes it whole."""
        head = self._head
        if head is None or head.length is not None or head.is_chunked:
            return None
        return WholeResponse(head, bytes(self._received))


def read_head(data: bytes) -> ResponseHead:
    """The head of a response, up to the empty line.

    Raises:
        ConnectionFailedError: it is none.
    """
    found = _heads.get(data)
    if found is not None:
        return found
    if not data.startswith(b"HTTP/1.") or not data[9:12].isdigit():
        raise _not_http(data)
    fields = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in _LINE.findall(data)}
    status = int(data[9:12])
    has_body = status >= 200 and status not in (204, 304)
    made = ResponseHead(
        status,
        _number(fields.get("content-length")) if has_body else 0,
        _number(fields.get(_HEADER_LENGTH)),
        "chunked" in fields.get("transfer-encoding", "").lower(),
        "close" in fields.get("connection", "").lower() or data.startswith(b"HTTP/1.0"),
        fields,
    )
    _heads[data] = made
    return made


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _not_http(data: Any) -> ConnectionFailedError:
    return ConnectionFailedError(f"expected a response of HTTP/1.1, got {bytes(data[:60])!r}", was_sent=True)
