"""Handlers made of one function, which returns the response or starts the work, and raises what the caller is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from naiad.errors import NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import JSON, send_error, send_json

Done = Callable[[NaiadError | None], None]


def json_handler(make_content: Callable[[Body], object]) -> Handler:
    """A handler that responds with what ``make_content`` returns for the body, as JSON."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            send_json(exchange, make_content(body))
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def action_handler(start: Callable[[Body, Done], None]) -> Handler:
    """A handler that responds with an empty 200 once the work is done that ``start`` begins.

    ``start`` gets the body and a function to call on the event loop at the end, with the error if the work failed.
    """

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            start(body, partial(_send_done, exchange))
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def _send_done(exchange: Exchange, error: NaiadError | None) -> None:
    if error is not None:
        send_error(exchange, error)
    else:
        exchange.send_status(200, JSON, b"")
