"""Small responses: JSON values, errors and empty bodies, with the reference's content types."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import orjson

from naiad.errors import INTERNAL_FAILURE, NaiadError, QueueFullError, caller_text
from naiad.frontends.http.server.exchange import Exchange
from naiad.frontends.inference.refusals import id_field, id_of
from naiad.wire.http1.head import encode_head

log = logging.getLogger(__name__)

JSON = "application/json"
TEXT = "text/plain"
RETRY_AFTER = ("Retry-After", "1")
"""For requests that may succeed later. Queues that move are shorter than a second; any other time would be a guess."""


def send_json(exchange: Exchange, value: Any) -> None:
    """Answer 200 with a JSON value."""
    exchange.send_status(200, JSON, orjson.dumps(value))


def send_empty(exchange: Exchange, status: int = 200) -> None:
    """Answer with an empty body."""
    exchange.send_status(status, TEXT, b"")


def send_error(
    exchange: Exchange,
    error: NaiadError,
    content_type: str = JSON,
    extra: tuple[tuple[str, str], ...] = (),
    request_id: str = "",
) -> None:
    """Answer with an error's status and its text as ``{"error": ...}``.

    ``request_id``: of the request that failed, for a header; by default that of the owner of the exchange.
    """
    if request_id := request_id or id_of(exchange.owner):
        extra = (*extra, id_field(request_id))
    if isinstance(error, QueueFullError):
        if not extra:
            exchange.send(_refusal(error.http_status, content_type, str(error)))
            return
        extra = (*extra, RETRY_AFTER)
    elif error.http_status == 503:
        extra = (*extra, RETRY_AFTER)
    exchange.send_status(error.http_status, content_type, orjson.dumps({"error": caller_text(error)}), extra)


@lru_cache(maxsize=64)
def _refusal(status: int, content_type: str, text: str) -> bytes:
    """A whole response, cached: an overloaded server sends the same one many times."""
    body = orjson.dumps({"error": text})
    return encode_head(status, content_type, len(body), (RETRY_AFTER,)) + body


def handler_failed(exchange: Exchange) -> None:
    """Answer 500 for a handler that raised unexpectedly; called while the exception is handled."""
    log.exception("handler failed: %s %s", exchange.head.method, exchange.head.target)
    exchange.send_error(500, INTERNAL_FAILURE)


def send_message(
    exchange: Exchange, status: int, message: str, content_type: str = JSON, extra: tuple[tuple[str, str], ...] = ()
) -> None:
    """Answer with ``{"error": message}`` and ``extra`` headers."""
    exchange.send_status(status, content_type, orjson.dumps({"error": caller_text(message)}), extra)


def send_wrong_method(exchange: Exchange, allowed: str, content_type: str = JSON) -> None:
    """Answer 405; ``allowed`` lists the methods of the path, which RFC 9110 requires."""
    send_message(exchange, 405, "Method Not Allowed", content_type, (("Allow", allowed),))
