"""``/v2/models/{model}/routes``: the routes of a model, and the calls that change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from naiad.engine.engine import Engine
from naiad.errors import InvalidArgumentError, NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import send_error, send_json
from naiad.frontends.http.v2.small_body import read_settings


def show(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that answers with the routes of a model, what they were, and what its shadow did."""
    return _answering(lambda body: engine.routes.show(model))


def change(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that changes aliases, split and shadow of a model, all or none, and answers with the routes."""
    return _answering(lambda body: engine.routes.change(model, read_settings(body)))


def promote(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that gives a version all requests, and an alias, and answers with the routes."""
    return _answering(lambda body: engine.routes.promote(model, read_settings(body) if body else {}))


def roll_back(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler that goes back to the routes before the last change, and answers with them."""

    def make_content(body: Body) -> dict[str, Any]:
        if body and read_settings(body):
            raise InvalidArgumentError("a rollback goes back to the routes before the last change and takes no fields")
        return engine.routes.roll_back(model)

    return _answering(make_content)


def _answering(make_content: Callable[[Body], dict[str, Any]]) -> Handler:
    def handle(exchange: Exchange, body: Body) -> None:
        try:
            send_json(exchange, make_content(body))
        except NaiadError as error:
            send_error(exchange, error)

    return handle
