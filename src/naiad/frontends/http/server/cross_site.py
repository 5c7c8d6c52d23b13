"""Requests that pages of other sites make a browser send: they must not steer the server of the browser's owner.

A browser sends a simple POST of any page to any address, this machine's own included, and only keeps the response from
the page. Source: the W3C's "Fetch Metadata Request Headers", and RFC 6454 for ``Origin``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from naiad.frontends.access.features import feature_of_http
from naiad.frontends.http.server.replies import send_message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from naiad.frontends.http.server.exchange import Application, Exchange, Handler
    from naiad.wire.http1.head import RequestHead

STEERING: Final = frozenset({"model-repository", "shared-memory", "trace", "logging"})
"""The features whose requests change what the server does."""
CROSS_SITE: Final = (
    "this request comes from a page of another site, which may not steer the server; name its origin with "
    "--http-cors-origin to allow it"
)


def _refuse(exchange: Exchange, body: bytearray | memoryview) -> None:
    send_message(exchange, 403, CROSS_SITE)


def without_cross_site(
    application: Application,
    origins: Collection[str],
    feature_of: Callable[[str], str] = feature_of_http,
    refuse: Handler = _refuse,
) -> Application:
    """``application`` without the steering requests of pages that are neither its own nor from ``origins``.

    ``refuse`` answers those.
    """

    def find(head: RequestHead) -> Handler:
        if head.method == "POST" and is_cross_site(head) and feature_of(head.target) in STEERING:
            origin = head.headers.get("origin", "")
            if not ("*" in origins or origin in origins):
                head.refused = True
                return refuse
        return application(head)

    return find


def is_cross_site(head: RequestHead) -> bool:
    """Whether a browser says that the request comes from a page of another origin. Other clients say nothing."""
    site = head.headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = head.headers.get("origin")
    return origin is not None and origin.partition("://")[2].lower() != head.headers.get("host", "").lower()
