"""Requests of a cloud platform as requests to the v2 API: another method and path, and the same body.

The v2 application is asked about a head of its own, and what it sets there goes to the head that came.
"""

from __future__ import annotations

from typing import Final

from naiad.frontends.http.server.exchange import Application, Handler
from naiad.frontends.http.v2.body_parts import LENGTH_HEADER
from naiad.wire.http1.head import RequestHead

_LEFT_OUT: Final = frozenset({"content-encoding", "accept-encoding", LENGTH_HEADER.lower()})
"""The platforms define no codings, and say the length of the JSON part in the content type."""


def inner_head(head: RequestHead, method: str, target: str, json_bytes: str | None = None) -> RequestHead:
    """The head of a request to the v2 API that stands for one with ``head``.

    ``json_bytes`` is the length of the JSON part as the caller wrote it; None for a body that is JSON alone.
    """
    headers = {name: value for name, value in head.headers.items() if name not in _LEFT_OUT}
    if json_bytes is not None:
        headers[LENGTH_HEADER.lower()] = json_bytes
    return RequestHead(method, target, head.query, head.version, headers, head.raw)


def adopt(head: RequestHead, inner: RequestHead) -> None:
    """Set on ``head`` what an application has set on ``inner``."""
    head.query = inner.query
    head.refused = inner.refused
    head.first_part_bytes = inner.first_part_bytes
    head.limited_bytes = inner.limited_bytes
    head.find_arena = inner.find_arena
    head.needs_room = inner.needs_room


def handler_by(application: Application, head: RequestHead, inner: RequestHead) -> Handler:
    """The handler that ``application`` has for ``inner``, for requests with ``head``."""
    handler = application(inner)
    adopt(head, inner)
    return handler
