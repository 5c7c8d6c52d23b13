"""Small answers: JSON values, errors and empty bodies, with the content types that the reference gives them."""

from __future__ import annotations

from typing import Any

import orjson

from naiad.errors import NaiadError, caller_text
from naiad.frontends.http.protocol import Exchange

JSON = "application/json"
TEXT = "text/plain"


def send_json(exchange: Exchange, value: Any) -> None:
    """Answer 200 with a JSON value."""
    exchange.send_status(200, JSON, orjson.dumps(value))


def send_empty(exchange: Exchange, status: int = 200) -> None:
    """Answer with an empty body."""
    exchange.send_status(status, TEXT, b"")


def send_error(
    exchange: Exchange, error: NaiadError, content_type: str = JSON, extra: tuple[tuple[str, str], ...] = ()
) -> None:
    """Answer with an error's status and its text as ``{"error": ...}``."""
    if error.http_status == 503:
        extra = (*extra, ("Retry-After", "1"))
    exchange.send_status(error.http_status, content_type, orjson.dumps({"error": caller_text(error)}), extra)


def send_message(exchange: Exchange, status: int, message: str, content_type: str = JSON) -> None:
    """Answer with ``{"error": message}``."""
    exchange.send_status(status, content_type, orjson.dumps({"error": caller_text(message)}))
