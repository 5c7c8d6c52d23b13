"""``/v2``, ``/v2/models/{model}`` and ``/v2/models/{model}/config``."""

from __future__ import annotations

from naiad.config.export import config_json
from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import JSON, send_error, send_json


def server(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of server metadata."""

    def handle(exchange: Exchange, body: Body) -> None:
        send_json(exchange, engine.server_metadata())

    return handle


def model(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of model metadata."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            send_json(exchange, engine.model_metadata(model, version))
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def config(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the completed model configuration."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            exchange.send_status(200, JSON, config_json(engine.model_config(model, version)))
        except NaiadError as error:
            send_error(exchange, error)

    return handle
