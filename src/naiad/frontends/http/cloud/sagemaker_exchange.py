"""SageMaker's form of a response: the content type has the length of the JSON part, and failures have few statuses."""

from __future__ import annotations

from typing import Any, Final

from naiad.frontends.http.cloud.binary_type import SAGEMAKER
from naiad.frontends.http.cloud.memory_shortage import is_memory_shortage
from naiad.frontends.http.server.exchange import Exchange, OuterExchange
from naiad.frontends.http.v2.body_parts import LENGTH_HEADER
from naiad.wire.http1.head import HEAD_END, reason_of

_LENGTH: Final = f"{LENGTH_HEADER}: ".encode()
_TYPE: Final = b"Content-Type: "
_BINARY: Final = _TYPE + SAGEMAKER.prefix.encode()
_STATUS_AT: Final = slice(9, 12)
_RETRYABLE: Final = (429, 503, 504)


class SageMakerExchange(OuterExchange):
    """An exchange whose response gets that form.

    With ``is_invocation`` an error is a 400, or a 507 where memory lacks, as SageMaker expects it of a model among
    several. Statuses after which the same request may succeed stay as they are.
    """

    __slots__ = ("_is_invocation",)

    def __init__(self, inner: Exchange, is_invocation: bool) -> None:
        super().__init__(inner)
        self._is_invocation = is_invocation

    def send(self, parts: bytes | list[Any]) -> None:
        first, *rest = [parts] if isinstance(parts, bytes) else parts
        head, _, body = bytes(first).partition(HEAD_END)
        lines = head.split(b"\r\n")
        if self._is_invocation:
            lines[0] = _status_line(lines[0], body + b"".join(rest) if lines[0][_STATUS_AT] != b"200" else b"")
        self._inner.send([b"\r\n".join(_with_length_in_type(lines)) + HEAD_END + body, *rest])


def _status_line(line: bytes, body: bytes) -> bytes:
    status = int(line[_STATUS_AT])
    if status != 200 and status not in _RETRYABLE:
        status = 507 if is_memory_shortage(body.decode(errors="replace")) else 400
    return f"HTTP/1.1 {status} {reason_of(status)}".encode()


def _with_length_in_type(lines: list[bytes]) -> list[bytes]:
    length = next((line.removeprefix(_LENGTH) for line in lines if line.startswith(_LENGTH)), None)
    if length is None:
        return lines
    kept = [line for line in lines if not line.startswith(_LENGTH)]
    return [_BINARY + length if line.startswith(_TYPE) else line for line in kept]
