"""What callers of this API are told who may not use it."""

from __future__ import annotations

from naiad.errors import NaiadError, RestrictedError
from naiad.frontends.http.server.access_gate import refusal_fields
from naiad.frontends.http.server.cross_site import CROSS_SITE
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.openai.errors import send_error, send_refusal


def refusing(error: NaiadError) -> Handler:
    """A handler that refuses a request with ``error``; with 401 where a header opens the feature, as the reference."""

    def refuse(exchange: Exchange, body: Body) -> None:
        if isinstance(error, RestrictedError):
            send_refusal(exchange, 401, str(error))
        else:
            send_error(exchange, error, refusal_fields(error))

    return refuse


def refuse_cross_site(exchange: Exchange, body: Body) -> None:
    """Refuse a request that a page of another site made a browser send."""
    send_refusal(exchange, 403, CROSS_SITE)
