"""Responses to requests that get no further: with an empty body, as the reference has them, or with an error."""

from __future__ import annotations

from naiad.errors import NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import send_empty, send_error, send_wrong_method
from naiad.wire.http1.head import RequestHead


def empty(head: RequestHead, status: int) -> Handler:
    """A handler that answers with ``status``, whatever the body is."""
    # A large body is then not waited for.
    head.refused = True

    def refuse(exchange: Exchange, body: Body) -> None:
        send_empty(exchange, status)

    return refuse


def with_error(head: RequestHead, error: NaiadError) -> Handler:
    """A handler that answers with an error, whatever the body is."""
    head.refused = True

    def refuse(exchange: Exchange, body: Body) -> None:
        send_error(exchange, error)

    return refuse


def wrong_method(head: RequestHead, allowed: str) -> Handler:
    """A handler that answers 405; ``allowed`` lists the methods of the path."""
    head.refused = True

    def refuse(exchange: Exchange, body: Body) -> None:
        send_wrong_method(exchange, allowed)

    return refuse
