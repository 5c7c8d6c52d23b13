"""How a call of gRPC ended."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from naiad.perf.target.protocol import Problem
from naiad.wire.grpc.status import Status

OK_STATUS = "0"


def problem_of(fields: Mapping[str, str]) -> Problem:
    """Kind and cause of a failure, from the trailers of its call."""
    code = fields.get("grpc-status")
    if code is None:
        status = fields.get(":status", "none")
        return f"HTTP {status}", "the call ended without a status of gRPC"
    return f"gRPC {status_name(code)}", unquote(fields.get("grpc-message", "")) or "the server gave no text"


def status_name(code: str) -> str:
    """The name of a status code."""
    try:
        return Status(int(code)).name
    except ValueError:
        return code
