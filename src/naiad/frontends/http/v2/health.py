"""``/v2/health/live``, ``/v2/health/ready`` and ``/v2/models/{model}/ready``.

As the reference answers: an empty 200, or 400 if not; ``?verbose=true`` on ready adds what is not ready. A caller that
accepts JSON (``Accept: application/json``) gets the document of the KServe protocol, with the same status.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import orjson

from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import JSON, TEXT, send_empty, send_error, send_message

NOTHING_MORE: Final[Mapping[str, str]] = MappingProxyType({})


def live(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of server liveness."""

    def handle(exchange: Exchange, body: Body) -> None:
        _send(exchange, engine.is_live(), "live")

    return handle


def ready(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of server readiness."""

    def handle(exchange: Exchange, body: Body) -> None:
        if engine.is_ready():
            _send(exchange, True, "ready")
        elif "verbose=true" in exchange.head.query.split("&"):
            is_ending = engine.exiting or engine.leaving
            reasons = ["the server is shutting down"] if is_ending else engine.not_ready() or ["models are loading"]
            send_message(exchange, 400, "not ready: " + "; ".join(reasons))
        else:
            _send(exchange, False, "ready")

    return handle


def model_ready(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the readiness of one model or version."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            is_ready = engine.reports_model_ready(model, version)
        except NaiadError as error:
            send_error(exchange, error, TEXT)
            return
        if is_ready or _wants_json(exchange):
            _send(exchange, is_ready, "ready", {"name": model})
        else:
            send_message(exchange, 400, "Model version not ready", TEXT)

    return handle


def _send(exchange: Exchange, holds: bool, key: str, more: Mapping[str, str] = NOTHING_MORE) -> None:
    """Answer 200 if ``holds``, else 400: empty, or as JSON with ``key`` for callers that accept it."""
    status = 200 if holds else 400
    if _wants_json(exchange):
        exchange.send_status(status, JSON, orjson.dumps({**more, key: holds}))
    else:
        send_empty(exchange, status)


def _wants_json(exchange: Exchange) -> bool:
    accepted = exchange.head.headers.get("accept", "")
    return any(part.partition(";")[0].strip().lower() == JSON for part in accepted.split(","))
