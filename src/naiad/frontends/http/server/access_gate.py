"""The gate before an application: it refuses the requests that may not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from naiad.errors import NaiadError, RateLimitError, RestrictedError, ScopeError, UnauthenticatedError
from naiad.frontends.access.features import HEALTH_FEATURE, REPOSITORY_FEATURE, feature_of_http
from naiad.frontends.http.server.replies import JSON, TEXT
from naiad.wire.http1.head import encode_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.frontends.access.gate import Gate
    from naiad.frontends.access.keys import KnownKey
    from naiad.frontends.http.server.exchange import Application, Exchange, Handler
    from naiad.wire.http1.head import RequestHead

_CHALLENGE: Final = 'Bearer realm="naiad"'


def refusing(error: NaiadError) -> Handler:
    """A handler that refuses a request with ``error``.

    Source of the content type: the reference answers a restricted API with plain text that holds JSON.
    """
    body = orjson.dumps({"error": str(error)})
    type_ = TEXT if isinstance(error, RestrictedError) else JSON
    # Encoded once: refused callers repeat themselves.
    response = encode_head(error.http_status, type_, len(body), refusal_fields(error)) + body

    def refuse(exchange: Exchange, body: bytearray | memoryview) -> None:
        exchange.send(response)

    return refuse


def guarded(
    application: Application,
    gate: Gate,
    feature_of: Callable[[str], str] = feature_of_http,
    refuse: Callable[[NaiadError], Handler] = refusing,
) -> Application:
    """``application`` behind ``gate``, or as it is when the gate asks for nothing.

    The gate is asked when a head is seen for the first time: repeated requests pay for their limit alone. ``refuse``
    makes the handler of requests that may not pass.
    """
    if gate.is_open:
        return application

    def find(head: RequestHead) -> Handler:
        feature = feature_of(head.target)
        try:
            key = gate.admit(feature, head.headers)
        except NaiadError as error:
            # A large body is then not waited for: see ``HttpConnection._begin_body``.
            head.refused = True
            return refuse(error)
        if feature == HEALTH_FEATURE and head.query and not _may_read_index(gate, head):
            # The reasons of failed loads hold paths and texts of models: only callers who may read the index get them.
            head.query = ""
        handler = application(head)
        return handler if key is None else _limited(handler, key, refuse)

    return find


def _may_read_index(gate: Gate, head: RequestHead) -> bool:
    try:
        gate.admit(REPOSITORY_FEATURE, head.headers)
    except NaiadError:
        return False
    return True


def refusal_fields(error: NaiadError) -> tuple[tuple[str, str], ...]:
    """The header fields of a refusal: which credentials to send (RFC 6750, section 3), or when to try again."""
    if isinstance(error, RateLimitError):
        # The true wait is known here, unlike that of a full queue.
        return (("Retry-After", str(error.retry_s)),)
    if isinstance(error, UnauthenticatedError):
        reason = f', error="{error.reason_code}"' if error.reason_code else ""
    elif isinstance(error, ScopeError):
        reason = f', error="insufficient_scope", scope="{error.scope}"'
    else:
        return ()
    return (("WWW-Authenticate", _CHALLENGE + reason),)


def _limited(handler: Handler, key: KnownKey, refuse: Callable[[NaiadError], Handler]) -> Handler:
    def handle(exchange: Exchange, body: bytearray | memoryview) -> None:
        try:
            key.take()
        except RateLimitError as error:
            refuse(error)(exchange, body)
        else:
            handler(exchange, body)

    return handle
