"""Pages of other origins (CORS): a browser lets a page read a response only if the response permits it.

Source of the rules: the Fetch standard, section "CORS protocol".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from naiad.wire.http1.head import encode_head

if TYPE_CHECKING:
    from collections.abc import Collection

    from naiad.frontends.http.server.exchange import Application, Exchange, Handler
    from naiad.wire.http1.head import RequestHead

ANY: Final = "*"
MAX_AGE_S: Final = 7200
"""How long a browser may cache the result of a preflight."""
EXPOSED: Final = "Inference-Header-Content-Length, Retry-After, WWW-Authenticate"
"""The headers of responses that scripts may read, besides those that they always may."""

_HEADER_NAMES = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+(?: ?, ?[!#$%&'*+\-.^_`|~0-9A-Za-z]+)*")


def shared_with(application: Application, origins: Collection[str]) -> Application:
    """``application``, whose responses pages from ``origins`` may read; as it is when there are none.

    A browser's preflight is answered here, without an API key, since browsers send none with it. Requests that name no
    origin are passed on unchanged and cost nothing more.
    """
    if not origins:
        return application

    def find(head: RequestHead) -> Handler:
        origin = head.headers.get("origin")
        if origin is None:
            return application(head)
        allowed = _allowed(origin, origins)
        # The response depends on the origin, so caches must not serve it to other origins.
        vary = () if allowed == ANY else (("Vary", "Origin"),)
        if not allowed:
            head.add_response_fields(vary)
            return application(head)
        if head.method == "OPTIONS" and "access-control-request-method" in head.headers:
            return _preflight((("Access-Control-Allow-Origin", allowed), *vary), head)
        head.add_response_fields(
            (("Access-Control-Allow-Origin", allowed), ("Access-Control-Expose-Headers", EXPOSED), *vary)
        )
        return application(head)

    return find


def _allowed(origin: str, origins: Collection[str]) -> str:
    """The value of ``Access-Control-Allow-Origin`` for ``origin``; "" when it is not among ``origins``."""
    if ANY in origins:
        return ANY
    return origin if origin in origins else ""


def _preflight(fields: tuple[tuple[str, str], ...], head: RequestHead) -> Handler:
    wanted = head.headers.get("access-control-request-headers", "")
    # Echoed only if it is a list of header names: anything else could add fields to the response.
    names = (("Access-Control-Allow-Headers", wanted),) if _HEADER_NAMES.fullmatch(wanted) else ()
    fixed = (("Access-Control-Allow-Methods", "GET, POST"), ("Access-Control-Max-Age", str(MAX_AGE_S)))
    response = encode_head(200, "", 0, (*fields, *fixed, *names))

    def allow(exchange: Exchange, body: bytearray | memoryview) -> None:
        exchange.send(response)

    return allow
