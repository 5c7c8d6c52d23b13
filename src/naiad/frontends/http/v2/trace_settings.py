"""``GET`` and ``POST`` of ``/v2/trace/setting`` and ``/v2/models/{model}/trace/setting``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from naiad.engine.engine import Engine
from naiad.errors import MalformedRequestError, NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import send_error, send_json
from naiad.frontends.http.v2.settings_body import read_settings
from naiad.options.trace_config import RANGES


def show(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that answers with the settings of a model, or of all without own ones."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            send_json(exchange, engine.trace_settings(model))
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def change(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that changes the settings of the body, all or none, and answers with all of them."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            engine.trace_settings(model)
            send_json(exchange, engine.change_trace_settings(model, _texts(read_settings(body))))
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def _texts(settings: Mapping[str, Any]) -> dict[str, Sequence[str] | None]:
    """The settings as lists of texts; None for null."""
    return {name: None if value is None else _checked(name, value) for name, value in settings.items()}


def _checked(name: str, value: Any) -> Sequence[str]:
    if name == "trace_level":
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise MalformedRequestError("Unable to parse 'trace_level': expected a list such as [\"TIMESTAMPS\"]")
        return value
    if name in RANGES and not isinstance(value, str):
        raise MalformedRequestError(f"Unable to parse '{name}': expected a number in a string, such as \"1\"")
    return [value]
