"""Errors as this API has them: those of OpenAI's, and with ``detail`` as the reference's front end has them."""

from __future__ import annotations

from typing import Final

import orjson

from naiad.errors import NaiadError, RateLimitError, caller_text
from naiad.frontends.http.server.exchange import Exchange
from naiad.frontends.http.server.replies import JSON, RETRY_AFTER
from naiad.wire.openai.documents import error_document
from naiad.wire.openai.schema import SchemaError

_KINDS: Final = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_CODES: Final = {413: "content_too_large"}


def error_json(error: NaiadError) -> bytes:
    """The document of an error."""
    text = caller_text(error)
    detail = [one.as_json() for one in error.problems] if isinstance(error, SchemaError) else text
    return orjson.dumps(error_document(text, _kind(error.http_status), detail=detail))


def send_error(exchange: Exchange, error: NaiadError, extra: tuple[tuple[str, str], ...] = ()) -> None:
    """Answer with the status and the document of an error."""
    if error.http_status in (429, 503) and not isinstance(error, RateLimitError):
        extra = (*extra, RETRY_AFTER)
    exchange.send_status(error.http_status, JSON, error_json(error), extra)


def send_refusal(exchange: Exchange, status: int, text: str, extra: tuple[tuple[str, str], ...] = ()) -> None:
    """Answer with an error that has this ``status`` and this ``text``."""
    exchange.send_status(status, JSON, refusal_json(status, text), extra)


def refusal_json(status: int, text: str) -> bytes:
    """The document of an error with this ``status`` and this ``text``."""
    return orjson.dumps(error_document(text, _kind(status), _CODES.get(status)))


def _kind(status: int) -> str:
    return _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
