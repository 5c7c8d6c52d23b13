"""Forwarding headers of HTTP requests: looked at once for each distinct request head."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from naiad.errors import NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import send_error
from naiad.frontends.http.v2.infer import HttpInferHandler
from naiad.frontends.inference.header_forwarding import HeaderForwarding
from naiad.wire.http1.head import RequestHead


def forwarding(handler: HttpInferHandler, head: RequestHead, forwarding: HeaderForwarding) -> Handler:
    """``handler``, or one that gives each request the headers of ``head`` that are forwarded."""
    try:
        chosen = forwarding.choose(_headers(head))
    except NaiadError as error:
        return partial(_refuse, error)
    return handler.forwarding(chosen) if chosen else handler


def _headers(head: RequestHead) -> Iterator[tuple[str, str]]:
    """Each header by the name that its caller wrote, repeated ones joined."""
    # From the raw head: the parsed names are in lower case, but parameters keep the case of the caller.
    for line in head.raw.decode("latin-1").split("\r\n")[1:]:
        name = line.partition(":")[0]
        if name.lower() in head.headers:
            yield name, head.headers[name.lower()]


def _refuse(error: NaiadError, exchange: Exchange, body: Body) -> None:
    send_error(exchange, error)
