"""``GET`` and ``POST`` of the log settings (``/v2/logging``) and of the trace settings (``/v2/trace/setting``, and
``/v2/models/{model}/trace/setting`` for those of one model), which are read and changed while the server runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import orjson

from naiad.engine.engine import Engine
from naiad.errors import MalformedRequestError, NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import JSON, send_error, send_json
from naiad.frontends.http.v2.simple_handlers import json_handler
from naiad.frontends.http.v2.small_body import read_settings
from naiad.options.trace_config import RANGES
from naiad.telemetry.logs.settings import LogFormatError, updated

BAD_FORMAT_STATUS: Final = 503
"""The reference's status for an unknown format."""


def show_log(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that answers with the log settings."""
    return json_handler(lambda body: asdict(engine.log.settings))


def change_log(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that changes the log settings of the body, all or none, and answers with all of them."""

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


def show_trace(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that answers with the trace settings of a model, or of all without own ones."""
    return json_handler(lambda body: engine.trace_settings(model))


def change_trace(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that changes the trace settings of the body, all or none, and answers with all of them."""

    def make_content(body: Body) -> dict[str, Any]:
        engine.trace_settings(model)
        return engine.change_trace_settings(model, _trace_texts(read_settings(body)))

    return json_handler(make_content)


def show_slow(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that answers with the slow requests of a model, or of all."""
    return json_handler(lambda body: engine.slow_requests(model))


def _trace_texts(settings: Mapping[str, Any]) -> dict[str, Sequence[str] | None]:
    """The settings as lists of texts; None for null, which clears a setting."""
    return {name: None if value is None else _checked_texts(name, value) for name, value in settings.items()}


def _checked_texts(name: str, value: Any) -> Sequence[str]:
    if name == "trace_level":
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise MalformedRequestError("Unable to parse 'trace_level': expected a list such as [\"TIMESTAMPS\"]")
        return value
    if name in RANGES and not isinstance(value, str):
        raise MalformedRequestError(f"Unable to parse '{name}': expected a number in a string, such as \"1\"")
    return [value]
