"""What a service says of a request that failed."""

from __future__ import annotations

from typing import Any, Final

import orjson

from naiad.perf.target.http_response import HttpResponseReader
from naiad.perf.target.protocol import Problem

_MAX_TEXT: Final = 300


def judge_failure(request: Any, reader: HttpResponseReader) -> Problem:
    """The cause of a response that is no success, in the server's words."""
    body = bytes(reader.body or b"")
    try:
        text = _message(orjson.loads(body))
    except (orjson.JSONDecodeError, LookupError, TypeError):
        text = body[:_MAX_TEXT].decode("utf-8", "replace").strip() or "the response has no body"
    return f"HTTP {reader.status}", text


def _message(value: Any) -> str:
    """The text of ``{"error": ...}``, or of ``{"message": ...}`` as TorchServe writes it."""
    return error_text(value["error"]) if "error" in value else str(value["message"])


def error_text(error: Any) -> str:
    """The words of a member ``error``: a text, or an object with a message."""
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    return error if isinstance(error, str) else orjson.dumps(error).decode()
