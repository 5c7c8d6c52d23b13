"""``/v2``, ``/v2/models/{model}`` and ``/v2/models/{model}/config``."""

from __future__ import annotations

from naiad.config.export import config_json
from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import JSON, send_error
from naiad.frontends.http.v2.simple_handlers import json_handler


def server(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of server metadata."""
    return json_handler(lambda body: engine.server_metadata())


def model(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of model metadata."""
    return json_handler(lambda body: engine.model_metadata(model, version))


def config(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the completed model configuration."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            exchange.send_status(200, JSON, config_json(engine.model_config(model, version)))
        except NaiadError as error:
            send_error(exchange, error)

    return handle
