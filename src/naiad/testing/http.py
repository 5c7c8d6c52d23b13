"""HTTP requests and responses as bytes, so that a test sees what the server sent and nothing is repaired on the way."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

RESPONSE_S: Final = 20.0
"""How long a response may take, in seconds."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One HTTP response: header names in lower case, the body after its chunks were joined."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes

    @property
    def type(self) -> str:
        """The content type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0]

    def json(self) -> Any:
        """The parsed JSON part of the body: the whole body, or its head where binary tensors follow."""
        length = self.headers.get("inference-header-content-length")
        return json.loads(self.body if length is None else self.body[: int(length)])

    @property
    def error(self) -> str:
        """The message of an error response."""
        return str(json.loads(self.body)["error"])


def request_bytes(method: str, path: str, body: bytes | None, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """The bytes of an HTTP/1.1 request.

    A content length is added unless ``body`` is None or ``headers`` already frame it.
    """
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"] + [f"{k}: {v}" for k, v in headers]
    if body is not None and not any(k.lower() in ("content-length", "transfer-encoding") for k, _ in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def read_response(connection: socket.socket, method: str = "GET") -> HttpResponse:
    """Read one response to a request with ``method``. Bytes behind it must not follow.

    Raises:
        ConnectionError: the server closed the connection before the response was complete.
    """
    buffer = bytearray()
    while b"\r\n\r\n" not in buffer:
        _receive(connection, buffer)
    head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
    # Every byte is a character of Latin-1, so a wrong header is shown as it came.
    first, *fields = head.decode("latin1").split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, _, v in (f.partition(":") for f in fields)}
    _, status, reason = first.split(" ", 2)
    body = bytearray(rest)
    if headers.get("transfer-encoding") == "chunked":
        while not body.endswith(b"0\r\n\r\n"):
            _receive(connection, body)
        return HttpResponse(int(status), reason, headers, _joined(bytes(body)))
    # A response to HEAD has the length of a body, but no body.
    expected = 0 if method == "HEAD" else int(headers.get("content-length", "0"))
    while len(body) < expected:
        _receive(connection, body)
    return HttpResponse(int(status), reason, headers, bytes(body))


def _joined(body: bytes) -> bytes:
    """The content of a chunked body."""
    joined = bytearray()
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        joined += rest[:length]
        if rest[length : length + 2] != b"\r\n":
            raise AssertionError(f"a chunk of {length} bytes has no end of line behind it")
        body = rest[length + 2 :]
    return bytes(joined)


def _receive(connection: socket.socket, buffer: bytearray) -> None:
    data = connection.recv(1 << 18)
    if not data:
        raise ConnectionError(f"the server closed the connection after {bytes(buffer[:300])!r}")
    buffer += data
