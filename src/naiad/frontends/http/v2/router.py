"""The handlers by path and method: one table, which is read when a request head is seen for the first time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from naiad.config.routes import ALIAS_PATTERN
from naiad.engine.engine import Engine
from naiad.frontends.http.json_worker.pool import JsonWork
from naiad.frontends.http.server.content_coding import BodyTooLargeError, ContentCoding
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import TEXT, send_json, send_message, send_wrong_method
from naiad.frontends.http.server.state import MAX_BODY_BYTES
from naiad.frontends.http.server.timed_exchange import with_timing
from naiad.frontends.http.v2 import (
    health,
    metadata,
    openapi,
    repository,
    settings,
    shared_memory,
    statistics,
)
from naiad.frontends.http.v2 import traffic as model_routes
from naiad.frontends.http.v2.body_parts import LENGTH_HEADER, describe_body
from naiad.frontends.http.v2.generate import GenerateHandler, GenerateStreamHandler
from naiad.frontends.http.v2.header_forwarding import forwarding
from naiad.frontends.http.v2.infer import HttpInferHandler
from naiad.frontends.http.v2.model_path import MODEL
from naiad.frontends.http.v2.route_table import Route, RouteServices, inference_route, make_route
from naiad.frontends.inference.header_forwarding import HeaderForwarding
from naiad.frontends.inference.refusals import ID_FIELD
from naiad.frontends.inference.server_timing import FIELD
from naiad.wire.http1.head import RequestHead

MAX_HANDLERS = 1024
MAX_KEY = 4096
"""Characters of a method and a path; each new head with a longer one gets a handler of its own."""
MAX_KEYS = 1 << 18
"""Characters of all methods and paths with cached handlers."""
# Possessive quantifiers: names in paths are matched without backtracking.
_NAME_ONLY = r"/v2/models/(?P<model>[^/]++)"
_SYSTEM = "/v2/systemsharedmemory"
_CUDA = "/v2/cudasharedmemory"
_ANY_REGION = "(?:/region/(?P<region>[^/]++))?"
_ZEROS = re.compile(r"^(/v2/models/[^/]+/versions/)0+(?=[0-9])")
"""Zeros before a version: with them it is still the same version, and shares its handler and plans."""
_DESCRIBED = (("Link", '</openapi.json>; rel="service-desc"'),)
"""The link to the description of the API (RFC 8631). It is a header, because the body of a 404 is the reference's."""
EXPOSED_HEADERS: Final = (LENGTH_HEADER, ID_FIELD, FIELD)
"""Headers of responses that scripts of pages of other origins may read."""
_ALIASED = re.compile(rf"/v2/models/(?P<model>[^/]++)/versions/(?P<alias>{ALIAS_PATTERN})(?:/|$)")


def describe(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of this document."""

    def handle(exchange: Exchange, body: Body) -> None:
        send_json(exchange, openapi.document(ROUTES))

    return handle


ROUTES: tuple[Route, ...] = (
    inference_route("POST", MODEL + "/infer", HttpInferHandler, TEXT),
    make_route("GET", "/v2/health/live", health.live, TEXT),
    make_route("GET", "/v2/health/ready", health.ready, TEXT),
    make_route("GET", MODEL + "/ready", health.model_ready, TEXT),
    make_route("GET", "/v2", metadata.server),
    make_route("GET", "/v2/models/stats", statistics.all_models),
    make_route("GET", MODEL + "/stats", statistics.one_model),
    make_route("GET", MODEL + "/config", metadata.config),
    make_route("GET", MODEL + "/config/written", metadata.written_config),
    make_route("GET", MODEL, metadata.model),
    make_route("POST", r"/v2/repository(?:/[^/]+)?/index", repository.index),
    make_route("POST", r"/v2/repository/models/(?P<model>[^/]++)/load", repository.load),
    make_route("POST", r"/v2/repository/models/(?P<model>[^/]++)/unload", repository.unload),
    make_route("POST", r"/v2/repository/[^/]+/models/[^/]+/(?:load|unload)", repository.named),
    inference_route("POST", MODEL + "/generate", GenerateHandler),
    inference_route("POST", MODEL + "/generate_stream", GenerateStreamHandler),
    make_route("GET", _NAME_ONLY + "/routes", model_routes.show),
    make_route("POST", _NAME_ONLY + "/routes", model_routes.change),
    make_route("POST", _NAME_ONLY + "/routes/promote", model_routes.promote),
    make_route("POST", _NAME_ONLY + "/routes/rollback", model_routes.roll_back),
    make_route("GET", _SYSTEM + _ANY_REGION + "/status", shared_memory.system_status),
    make_route("GET", _CUDA + _ANY_REGION + "/status", shared_memory.cuda_status),
    make_route("POST", _SYSTEM + _ANY_REGION + "/register", shared_memory.register_system_region),
    make_route("POST", _CUDA + _ANY_REGION + "/register", shared_memory.register_cuda_region),
    make_route("POST", _SYSTEM + _ANY_REGION + "/unregister", shared_memory.unregister_system_region),
    make_route("POST", _CUDA + _ANY_REGION + "/unregister", shared_memory.unregister_cuda_region),
    make_route("GET", "/v2/logging", settings.show_log),
    make_route("POST", "/v2/logging", settings.change_log),
    make_route("GET", f"(?:/v2|{_NAME_ONLY})/trace/setting", settings.show_trace),
    make_route("POST", f"(?:/v2|{_NAME_ONLY})/trace/setting", settings.change_trace),
    make_route("GET", f"(?:/v2|{_NAME_ONLY})/traces/slow", settings.show_slow),
    make_route("GET", r"/openapi\.json", describe),
)


class Router:
    """Finds the handler for a request head. Handlers are cached by method and path, so that they can have state.

    For paths without a route and for wrong methods nothing is cached: callers can make up any number of them.

    ``max_body_bytes`` is the limit for the body of an inference request once decompressed, ``too_large`` the error for
    a larger one; ``forward`` chooses the headers that become parameters. Whoever makes a router calls ``close`` in the
    end.

    Attributes:
        json_work: reads and writes large JSON.
    """

    def __init__(
        self,
        engine: Engine,
        max_body_bytes: int = MAX_BODY_BYTES,
        forward: HeaderForwarding | None = None,
        too_large: type[BodyTooLargeError] = BodyTooLargeError,
    ) -> None:
        self._engine = engine
        self.json_work = JsonWork(engine.budget, engine.sliced_work)
        self._services = RouteServices(engine, self.json_work)
        self._forwarding = forward
        self._coding = ContentCoding(max_body_bytes, engine.budget, too_large)
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._characters = 0
        # Includes handlers that only cached heads refer to: a second one would cache the same plans once more.
        self._living: WeakValueDictionary[tuple[str, str], Handler] = WeakValueDictionary()

    def __call__(self, head: RequestHead) -> Handler:
        key = (head.method, _ZEROS.sub(r"\1", head.target))
        handler = self._handlers.get(key)
        if handler is None:
            # The cache may have been emptied while heads still refer to the handler.
            handler = self._living.get(key) or self._find(*key)
            if handler is None:
                return _refusal(key[1])
            self._keep(key, handler)
        found = handler
        if isinstance(handler, HttpInferHandler):
            describe_body(head)
            head.find_arena = handler.arena
            # Around the cached handler: codings and forwarded headers belong to the head, not to the path.
            found = self._around_inference(handler, head)
        elif isinstance(handler, (GenerateHandler, GenerateStreamHandler)):
            # Models can be loaded without room for inference.
            head.needs_room = True
            # A stream begins before its times are known.
            found = with_timing(handler, head) if isinstance(handler, GenerateHandler) else handler
        named = _ALIASED.match(head.target)
        return found if named is None else partial(self._handle_alias, named["model"], named["alias"], found)

    def _handle_alias(
        self, model: str, alias: str, handler: Handler, exchange: Exchange, body: bytearray | memoryview
    ) -> None:
        """Answer 404 unless the alias exists now: aliases come and go while heads are cached."""
        (handler if self._engine.has_alias(model, alias) else _not_found)(exchange, body)

    def _around_inference(self, handler: HttpInferHandler, head: RequestHead) -> Handler:
        """The handler with header forwarding and codings where the head asks for them; other heads do not pay."""
        found: Handler = handler if self._forwarding is None else forwarding(handler, head, self._forwarding)
        return self._coding.around(with_timing(found, head), head)

    def _find(self, method: str, path: str) -> Handler | None:
        """A new handler; None when no route has this method and path."""
        for route in ROUTES:
            if route.method == method and (match := route.pattern.fullmatch(path)) is not None:
                groups = match.groupdict()
                return route.make(self._services, _named(groups), groups.get("version"))
        return None

    def close(self) -> None:
        """End the threads and workers for large JSON."""
        self.json_work.close()

    def _keep(self, key: tuple[str, str], handler: Handler) -> None:
        size = len(key[0]) + len(key[1])
        if size > MAX_KEY:
            return
        if len(self._handlers) >= MAX_HANDLERS or self._characters + size > MAX_KEYS:
            self._handlers.clear()
            self._characters = 0
        self._handlers[key] = self._living[key] = handler
        self._characters += size


def _refusal(path: str) -> Handler:
    """The handler for a path that has no route, or none with the method of the request."""
    others = [route for route in ROUTES if route.pattern.fullmatch(path)]
    return _wrong_method(others) if others else _not_found


def _not_found(exchange: Exchange, body: Body) -> None:
    send_message(exchange, 404, "Not Found", TEXT, _DESCRIBED)


def _wrong_method(routes: Sequence[Route]) -> Handler:
    """The 405 of a path that has ``routes``, all of other methods."""
    allowed = ", ".join(sorted({route.method for route in routes}))
    content_type = routes[0].wrong_method_type

    def handle(exchange: Exchange, body: Body) -> None:
        send_wrong_method(exchange, allowed, content_type)

    return handle


def _named(groups: Mapping[str, str | None]) -> str:
    return groups.get("model") or groups.get("region") or ""
