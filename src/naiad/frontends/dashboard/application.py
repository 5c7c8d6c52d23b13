"""``Dashboard``: the paths below ``/dashboard/`` in front of the paths of the API."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import InvalidArgumentError, NaiadError, NotFoundError
from naiad.frontends.dashboard.access import VIEW, DashboardAccess
from naiad.frontends.dashboard.config_page import checked, explained
from naiad.frontends.dashboard.event_stream import DashboardStream
from naiad.frontends.dashboard.static_files import INDEX, SECURITY_HEADERS, content, content_type
from naiad.frontends.http.server.access_gate import refusal_fields
from naiad.frontends.http.server.replies import JSON, TEXT, send_error, send_message
from naiad.frontends.http.v2.load_body import read_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.engine.engine import Engine
    from naiad.frontends.http.server.exchange import Application, Body, Exchange, Handler
    from naiad.gpus.usable import UsableGpus
    from naiad.wire.http1.head import RequestHead

ROOT: Final = "/dashboard"
FOLDER: Final = "/dashboard/"
_EXPLAIN, _CHECK, _CHOOSE = "explain/", "check/", "page/"


class Dashboard:
    """Serves the page, its events and what it asks for. ``close`` ends the open pages.

    Files need no API key, since a browser sends none for them. Everything else does, where the server has keys.

    Args:
        gpus: the GPUs that configurations may name.
        loads: whether models are loaded and unloaded over the API.
        grpc: the port that serves gRPC and whether it is encrypted, for the programs that the page shows; None without.
            Port 0 is the page's own.
    """

    def __init__(
        self,
        engine: Engine,
        access: DashboardAccess,
        gpus: Callable[[], UsableGpus],
        loads: bool = True,
        grpc: tuple[int, bool] | None = None,
    ) -> None:
        self._engine = engine
        self._access = access
        self._gpus = gpus
        self._events = DashboardStream(engine, {"loads": loads, "slow": engine.slow is not None, "grpc": grpc})

    def before(self, application: Application) -> Application:
        """``application`` with the dashboard's paths in front of it; other paths pay for one comparison per head."""

        def find(head: RequestHead) -> Handler:
            if head.target == ROOT or head.target.startswith(FOLDER):
                return self._find(head)
            return application(head)

        return find

    def close(self) -> None:
        """End the open pages."""
        self._events.close()

    def _find(self, head: RequestHead) -> Handler:
        handler = self._handler(head)

        def handle(exchange: Exchange, body: bytearray | memoryview) -> None:
            refusal = self._access.refusal(head, exchange.connection.peer_host())
            if refusal:
                send_message(exchange, 403, refusal, JSON, SECURITY_HEADERS)
                return
            try:
                handler(exchange, body)
            except NaiadError as error:
                send_error(exchange, error, JSON, (*refusal_fields(error), *SECURITY_HEADERS))

        return handle

    def _handler(self, head: RequestHead) -> Callable[[Exchange, Body], None]:
        path = head.target.removeprefix(ROOT).removeprefix("/")
        if head.method == "POST" and path.startswith(_CHECK):
            return partial(self._check, path.removeprefix(_CHECK), head)
        if head.method == "POST" and path.startswith(_CHOOSE):
            return partial(self._choose, path.removeprefix(_CHOOSE), head)
        if head.method not in ("GET", "HEAD"):
            return _wrong_method
        if head.target == ROOT:
            # Files are named relative to the folder.
            return _to_folder
        if path == "events":
            return partial(self._open, head)
        if path.startswith(_EXPLAIN):
            return partial(self._explain, path.removeprefix(_EXPLAIN), head)
        return partial(_send_file, path or INDEX)

    def _admit(self, feature: str, head: RequestHead) -> None:
        key = self._access.admit(feature, head)
        if key is not None:
            key.take()

    def _open(self, head: RequestHead, exchange: Exchange, body: Body) -> None:
        self._admit(VIEW, head)
        self._events.open(exchange, self._access.allowed(head), self._access.has_keys)

    def _choose(self, page: str, head: RequestHead, exchange: Exchange, body: Body) -> None:
        self._admit(VIEW, head)
        self._events.choose(page, read_object(body)[0])
        _send_json(exchange, {})

    def _explain(self, model: str, head: RequestHead, exchange: Exchange, body: Body) -> None:
        self._admit("model-config", head)
        version = head.query.removeprefix("version=") if head.query.startswith("version=") else ""
        _send_json(exchange, explained(self._engine, model, version))

    def _check(self, model: str, head: RequestHead, exchange: Exchange, body: Body) -> None:
        self._admit("model-repository", head)
        text = read_object(body)[0].get("config")
        if not isinstance(text, str):
            raise InvalidArgumentError("expected a JSON object with a text 'config', which is a configuration as JSON")
        _send_json(exchange, checked(self._engine, model, text, self._gpus))


def _send_json(exchange: Exchange, value: Any) -> None:
    import orjson

    exchange.send_status(200, JSON, orjson.dumps(value), SECURITY_HEADERS)


def _send_file(name: str, exchange: Exchange, body: Body) -> None:
    type_ = content_type(name)
    if not type_:
        raise NotFoundError(f"the dashboard has no file '{name}'")
    exchange.send_status(200, type_, content(name), SECURITY_HEADERS)


def _to_folder(exchange: Exchange, body: Body) -> None:
    exchange.send_status(308, TEXT, b"", (("Location", FOLDER), *SECURITY_HEADERS))


def _wrong_method(exchange: Exchange, body: Body) -> None:
    send_message(exchange, 405, "Method Not Allowed", JSON, (("Allow", "GET"), *SECURITY_HEADERS))
