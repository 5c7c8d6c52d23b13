"""``/v2/models/stats`` and ``/v2/models/{model}/stats``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.engine.engine import Engine
from naiad.engine.statistics import statistics_of
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import handler_failed, send_json
from naiad.frontends.http.v2.simple_handlers import json_handler


def all_models(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the statistics of every loaded model."""

    def handle(exchange: Exchange, body: Body) -> None:
        engine.sliced_work.run(_send_all(engine, exchange))

    return handle


def one_model(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the statistics of one model or version."""
    return json_handler(lambda body: engine.statistics(model, version))


def _send_all(engine: Engine, exchange: Exchange) -> Iterator[None]:
    """Send the statistics of all models, in a step for each."""
    found: list[dict[str, Any]] = []
    try:
        for loaded in engine.loaded_models():
            if exchange.closed():
                break
            found.append(statistics_of(loaded))
            yield
        send_json(exchange, {"model_stats": found})
    except Exception:
        handler_failed(exchange)
