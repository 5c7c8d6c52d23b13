"""``GET`` and ``POST /v2/logging``: what is logged, read and changed while the server runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import orjson

from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import JSON, send_error, send_json
from naiad.frontends.http.v2.settings_body import read_settings
from naiad.telemetry.logs.settings import LogFormatError, updated

BAD_FORMAT_STATUS: Final = 503
"""What the reference answers to an unknown format."""


def show(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that answers with the settings."""

    def handle(exchange: Exchange, body: Body) -> None:
        send_json(exchange, asdict(engine.log.settings))

    return handle


def change(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that changes the settings of the body, all or none, and answers with all of them."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            # As in the reference, null changes nothing.
            given = {name: value for name, value in read_settings(body).items() if value is not None}
            engine.log.change(updated(engine.log.settings, given))
        except LogFormatError as error:
            text = f"invalid argument for --log_format, got: {error.found}"
            exchange.send_status(BAD_FORMAT_STATUS, JSON, orjson.dumps({"error": text}))
        except NaiadError as error:
            send_error(exchange, error)
        else:
            send_json(exchange, asdict(engine.log.settings))

    return handle
