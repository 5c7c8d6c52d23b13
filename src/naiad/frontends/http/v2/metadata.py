"""``/v2``, ``/v2/models/{model}``, ``/v2/models/{model}/config`` and ``/v2/models/{model}/config/written``."""

from __future__ import annotations

import orjson

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


def written_config(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the configuration as completed and as written, with the line of each field that was written.

    Naiad's own: ``naiad explain --url`` finds out from it who wrote a value. ``file`` is the name of the file in the
    model's folder, null when the configuration came with a load request; ``lines`` are counted from 1. ``tuned`` is
    there for a model with a latency objective.
    """

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            found = engine.written_config(model, version)
        except NaiadError as error:
            send_error(exchange, error)
            return
        file, lines = found.read.origin.file, found.read.origin.lines
        content = {
            "version": str(found.version),
            "file": None if file is None else file.name,
            "lines": dict(lines),
            "written": orjson.Fragment(config_json(found.read.config)),
            "completed": orjson.Fragment(config_json(found.completed)),
        }
        if found.tuned is not None:
            content["tuned"] = found.tuned
        exchange.send_status(200, JSON, orjson.dumps(content))

    return handle
