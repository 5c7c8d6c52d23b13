"""``/v2/health/live``, ``/v2/health/ready`` and ``/v2/models/{model}/ready``.

As the reference answers: an empty 200, or 400 when not; ``?verbose=true`` on ready adds what is not ready.
"""

from __future__ import annotations

from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.frontends.http.server.connection import Exchange, Handler
from naiad.frontends.http.server.replies import TEXT, send_empty, send_error, send_message
from naiad.frontends.http.v2.infer_reader import Body


def live(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of server liveness."""

    def handle(exchange: Exchange, body: Body) -> None:
        send_empty(exchange, 200 if engine.is_live() else 400)

    return handle


def ready(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of server readiness."""

    def handle(exchange: Exchange, body: Body) -> None:
        if engine.is_ready():
            send_empty(exchange)
        elif "verbose=true" in exchange.head.query.split("&"):
            is_ending = engine.exiting or engine.leaving
            reasons = ["the server is shutting down"] if is_ending else engine.not_ready() or ["models are loading"]
            send_message(exchange, 400, "not ready: " + "; ".join(reasons))
        else:
            send_empty(exchange, 400)

    return handle


def model_ready(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the readiness of one model or version."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            is_ready = engine.tells_model_ready(model, version)
        except NaiadError as error:
            send_error(exchange, error, TEXT)
            return
        if is_ready:
            send_empty(exchange)
        else:
            send_message(exchange, 400, "Model version not ready", TEXT)

    return handle
