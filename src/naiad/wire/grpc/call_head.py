"""The head of a gRPC call, read from the header fields of its request.

Source: gRPC's "gRPC over HTTP/2", section Requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from naiad.wire.grpc.compression import ACCEPTED, ENCODINGS, IDENTITY, best_encoding
from naiad.wire.grpc.status import Status
from naiad.wire.http2.headers import Http2RequestHead

NO_TIMEOUT: Final = -1
_TIMEOUT = re.compile(r"(\d{1,8})([HMSmun])")
_UNIT_NS: Final = {"H": 3_600 * 10**9, "M": 60 * 10**9, "S": 10**9, "m": 10**6, "u": 10**3, "n": 1}
_CONTENT_TYPE = re.compile(r"application/grpc(\Z|[+;])")


@dataclass(frozen=True, slots=True)
class CallHead:
    """The head of one call.

    Attributes:
        path: ``/service/method``.
        metadata: all header fields of the caller; the values of names in ``-bin`` in base64, as they came.
        timeout_ns: how long the caller waits; ``NO_TIMEOUT`` without a timeout field.
        encoding: of request messages that are marked as compressed.
        response_encoding: the encoding for compressed responses that the caller accepts.
        http_status: not 200 when this is no gRPC call at all.
        status, text: not OK when the head itself is wrong.
    """

    path: str
    metadata: Mapping[str, str]
    timeout_ns: int = NO_TIMEOUT
    encoding: str = IDENTITY
    response_encoding: str = IDENTITY
    http_status: int = 200
    status: Status = Status.OK
    text: str = ""


def parse_call_head(head: Http2RequestHead) -> CallHead:
    """Read the head of a call. Errors are part of the result: a status and its text."""
    headers = head.headers
    if head.method != "POST":
        return CallHead(head.path, headers, http_status=405)
    # With status 200 another HTTP/2 client would take the error of a call for a success.
    if not _CONTENT_TYPE.match(headers.get("content-type", "")):
        return CallHead(head.path, headers, http_status=415)
    encoding = headers.get("grpc-encoding", IDENTITY)
    status, text = Status.OK, ""
    if encoding not in ENCODINGS:
        status, text = Status.UNIMPLEMENTED, f"grpc-encoding {encoding[:40]!r} is not served; these are: {ACCEPTED}"
    timeout_ns = _timeout_ns(headers.get("grpc-timeout"))
    if timeout_ns is None:
        status, text = Status.INTERNAL, f"grpc-timeout is malformed: {headers['grpc-timeout'][:40]!r}"
    response_encoding = best_encoding(headers.get("grpc-accept-encoding", ""))
    return CallHead(head.path, headers, timeout_ns or 0, encoding, response_encoding, 200, status, text)


def _timeout_ns(value: str | None) -> int | None:
    """Nanoseconds; None for a value that is none."""
    if value is None:
        return NO_TIMEOUT
    found = _TIMEOUT.fullmatch(value)
    return None if found is None else int(found[1]) * _UNIT_NS[found[2]]
