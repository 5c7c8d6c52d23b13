"""``/v2/models/stats`` and ``/v2/models/{model}/stats``."""

from __future__ import annotations

from typing import Any

from naiad.engine.engine import Engine
from naiad.engine.statistics import statistics_of
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import send_json
from naiad.frontends.http.server.sliced_response import send_in_slices
from naiad.frontends.http.v2.simple_handlers import json_handler


def all_models(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the statistics of every loaded model."""

    def handle(exchange: Exchange, body: Body) -> None:
        def send(found: list[dict[str, Any]]) -> None:
            send_json(exchange, {"model_stats": found})

        send_in_slices(engine.sliced_work, exchange, map(statistics_of, engine.loaded_models()), send)

    return handle


def one_model(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the statistics of one model or version."""
    return json_handler(lambda body: engine.statistics(model, version))
