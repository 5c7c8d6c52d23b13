"""``/v2/models/stats`` and ``/v2/models/{model}/stats``."""

from __future__ import annotations

from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import send_error, send_json


def all_models(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the statistics of every loaded model."""

    def handle(exchange: Exchange, body: Body) -> None:
        send_json(exchange, engine.statistics(None, None))

    return handle


def one_model(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the statistics of one model or version."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            send_json(exchange, engine.statistics(model, version))
        except NaiadError as error:
            send_error(exchange, error)

    return handle
