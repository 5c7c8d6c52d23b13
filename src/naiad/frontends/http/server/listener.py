"""The listener of the HTTP front end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from naiad.frontends.http.server.connection import HttpConnection
from naiad.frontends.http.server.state import HttpLimits, HttpService, protocol_error
from naiad.frontends.net.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from naiad.clock import Clock
    from naiad.frontends.http.server.exchange import Application
    from naiad.frontends.http.server.state import ErrorJson, TakeHttp2
    from naiad.scheduling.admission import RequestBudget


class HttpListener(Listener):
    """Accepts HTTP/1.1 connections and hands their requests to an application; ``Listener`` says the rest.

    ``take_http2`` gets the connections that begin as HTTP/2; without it they are refused. ``budget`` bounds how much is
    taken at a time. ``on_abort`` is called when the connections are closed, to end what the application has started.
    ``error_json`` makes the error documents of what the connections themselves refuse.
    """

    def __init__(
        self,
        application: Application,
        host: str,
        port: int,
        *,
        limits: HttpLimits | None = None,
        reuse_port: bool = False,
        clock: Clock | None = None,
        option: str = "--http-port",
        take_http2: TakeHttp2 | None = None,
        ssl: SSLContext | None = None,
        budget: RequestBudget | None = None,
        on_abort: Callable[[], None] | None = None,
        error_json: ErrorJson = protocol_error,
    ) -> None:
        service = HttpService(application, limits or HttpLimits(), take_http2, budget, error_json)
        connect = partial(HttpConnection, service)
        self._http = service
        self._on_abort = on_abort
        super().__init__(service, connect, host, port, option=option, reuse_port=reuse_port, clock=clock, ssl=ssl)

    def serve(self, application: Application) -> None:
        """Hand the requests to ``application`` from the next one on."""
        self._http.serve(application)

    def abort(self) -> None:
        super().abort()
        if self._on_abort is not None:
            self._on_abort()
