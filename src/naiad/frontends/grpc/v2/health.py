"""``grpc.health.v1.Health``: whether the server serves, asked once or watched.

As the reference answers, the name of a service does not matter: all of them serve exactly when the server is ready.
Source of the rules for ``Watch``: gRPC's health checking protocol.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from naiad.config.messages import message_class
from naiad.engine.engine import Engine
from naiad.frontends.grpc.rpc.call import Body, Methods, RpcCall, Unary, send_message
from naiad.frontends.grpc.v2.replies import check_size, protobuf_method, read_request
from naiad.wire.grpc.paths import HEALTH, path
from naiad.wire.grpc.status import STOPPING, Status

PACKAGE: Final = "grpc.health.v1"
POLL_SECONDS: Final = 0.25
"""The delay with which watchers learn of a change."""
MAX_WATCHERS: Final = 10_000


class HealthService:
    """Answers health checks.

    The loop looks for a change every ``POLL_SECONDS`` while somebody watches, and only then: the calls of the watchers
    own the timer, and the end of the last of them stops it.
    """

    def __init__(self, engine: Engine, max_watchers: int = MAX_WATCHERS) -> None:
        self._engine = engine
        self._max_watchers = max_watchers
        self._watchers: set[_Watcher] = set()
        self._timer: asyncio.TimerHandle | None = None

    def methods(self) -> Methods:
        """The methods by path."""
        return {
            path(HEALTH, "Check"): protobuf_method("HealthCheckRequest", self._check, PACKAGE),
            path(HEALTH, "Watch"): Unary(self.watch, check_room=check_size),
        }

    def _check(self, request: Any) -> Any:
        return _response(self._engine.is_ready())

    def watch(self, call: RpcCall, body: Body) -> None:
        """Send the state, then every change of it, until the caller gives up or the server stops."""
        if read_request(call, message_class("HealthCheckRequest", PACKAGE), body) is None:
            return
        if len(self._watchers) >= self._max_watchers:
            call.finish(
                Status.RESOURCE_EXHAUSTED, f"{self._max_watchers} calls watch already, which is the limit; use Check"
            )
            return
        watcher = _Watcher(self, call)
        call.owner = watcher
        self._watchers.add(watcher)
        # Before polling begins: the server may stop already, which ends this call within.
        self._notify(watcher, self._engine.is_ready())
        self._keep_polling()

    def forget(self, watcher: _Watcher) -> None:
        """Called by a watcher whose caller is gone."""
        self._watchers.discard(watcher)
        if not self._watchers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _keep_polling(self) -> None:
        if self._watchers and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        self._timer = None
        serving = self._engine.is_ready()
        # A copy: a watcher that is told of the end leaves the set.
        for watcher in tuple(self._watchers):
            self._notify(watcher, serving)
        self._keep_polling()

    def _notify(self, watcher: _Watcher, serving: bool) -> None:
        watcher.notify(serving)
        if self._engine.exiting:
            # Nothing changes any more, and an endless call would keep the server from stopping.
            # Removed by hand: a call that is finished does not cancel its owner.
            self.forget(watcher)
            watcher.call.finish(Status.UNAVAILABLE, STOPPING)


class _Watcher:
    """One call of ``Watch``."""

    __slots__ = ("_sent", "_service", "call")

    def __init__(self, service: HealthService, call: RpcCall) -> None:
        self.call = call
        self._service = service
        self._sent: bool | None = None

    def notify(self, serving: bool) -> None:
        """Send the state if it has changed; a congested caller gets the newest state later."""
        if serving is not self._sent and not self.call.congested:
            self._sent = serving
            send_message(self.call, _response(serving))

    def cancel(self) -> None:
        """The caller gave up."""
        self._service.forget(self)


def _response(serving: bool) -> Any:
    return message_class("HealthCheckResponse", PACKAGE)(status="SERVING" if serving else "NOT_SERVING")
