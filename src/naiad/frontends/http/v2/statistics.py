"""``/v2/models/stats`` and ``/v2/models/{model}/stats``."""

from __future__ import annotations

from naiad.engine.engine import Engine
from naiad.frontends.http.server.exchange import Handler
from naiad.frontends.http.v2.simple_handlers import json_handler


def all_models(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the statistics of every loaded model."""
    return json_handler(lambda body: engine.statistics(None, None))


def one_model(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the statistics of one model or version."""
    return json_handler(lambda body: engine.statistics(model, version))
