"""Responses to requests that get no further: with an empty body, as the reference has them, or with an error."""

from __future__ import annotations

from collections.abc import Callable

from naiad.errors import NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import send_empty, send_error, send_wrong_method
from naiad.wire.http1.head import RequestHead


def empty(head: RequestHead, status: int) -> Handler:
    """A handler that answers with ``status``, whatever the body is."""
    return _refusing(head, lambda exchange: send_empty(exchange, status))


def with_error(head: RequestHead, error: NaiadError) -> Handler:
    """A handler that answers with an error, whatever the body is."""
    return _refusing(head, lambda exchange: send_error(exchange, error))


def wrong_method(head: RequestHead, allowed: str) -> Handler:
    """A handler that answers 405; ``allowed`` lists the methods of the path."""
    return _refusing(head, lambda exchange: send_wrong_method(exchange, allowed))


def _refusing(head: RequestHead, respond: Callable[[Exchange], object]) -> Handler:
    # A large body is then not waited for.
    head.refused = True

    def refuse(exchange: Exchange, body: Body) -> None:
        respond(exchange)

    return refuse
