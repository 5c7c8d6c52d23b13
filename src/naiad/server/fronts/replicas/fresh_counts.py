"""Front ends send their counts before statistics are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from naiad.frontends.access.features import feature_of_http
from naiad.frontends.grpc.rpc.call import Unary
from naiad.frontends.http.server.replies import handler_failed
from naiad.wire.grpc.paths import INFERENCE, path

if TYPE_CHECKING:
    from naiad.frontends.grpc.rpc.call import Body, Methods, RpcCall
    from naiad.frontends.http.server.exchange import Application, Exchange, Handler
    from naiad.server.fronts.replicas.session import ReplicaSession
    from naiad.wire.http1.head import RequestHead

LONGEST_S: Final = 1.0
"""How long statistics wait for a front end that does not answer."""
_STATISTICS: Final = "statistics"
_MODEL_STATISTICS: Final = path(INFERENCE, "ModelStatistics")


class Counting(Protocol):
    """A front-end process of the engine."""

    replicas: ReplicaSession


@dataclass(slots=True)
class _Waiting:
    sessions: set[ReplicaSession]
    call: Callable[[], object]
    timer: asyncio.TimerHandle


class FreshCounts:
    """Calls back once every front end has said what its replicas have run. Used on the event loop only.

    Args:
        fronts: the sessions of the front ends, as they come and go.
    """

    def __init__(self, fronts: Collection[Counting]) -> None:
        self._fronts = fronts
        self._waiting: dict[int, _Waiting] = {}
        self._next = 1

    def then(self, call: Callable[[], object]) -> None:
        """Call ``call`` when the counters are up to date; at once where no front end has replicas."""
        requested = {front.replicas for front in self._fronts if front.replicas.has_any}
        if not requested:
            call()
            return
        mark, self._next = self._next, self._next + 1
        timer = asyncio.get_running_loop().call_later(LONGEST_S, self._finish, mark)
        self._waiting[mark] = _Waiting(requested, call, timer)
        for session in requested:
            session.request_counts(mark)

    def reported(self, session: ReplicaSession, mark: int) -> None:
        """A front end has sent its counts."""
        waiting = self._waiting.get(mark)
        if waiting is not None:
            waiting.sessions.discard(session)
            if not waiting.sessions:
                self._finish(mark)

    def forget(self, session: ReplicaSession) -> None:
        """A front end is gone: nobody waits for it any more."""
        for mark in list(self._waiting):
            self.reported(session, mark)

    def _finish(self, mark: int) -> None:
        waiting = self._waiting.pop(mark)
        waiting.timer.cancel()
        waiting.call()

    def close(self) -> None:
        """Call nobody any more."""
        for waiting in self._waiting.values():
            waiting.timer.cancel()
        self._waiting.clear()

    # What reads statistics

    def before_statistics(self, application: Application) -> Application:
        """The application whose requests for statistics wait for the counts."""

        def choose(head: RequestHead) -> Handler:
            handler = application(head)
            return self._waits(handler) if feature_of_http(head.target) == _STATISTICS else handler

        return choose

    def before_all(self, application: Application) -> Application:
        """The application all of whose requests wait for the counts."""
        return lambda head: self._waits(application(head))

    def before_calls(self, methods: Methods) -> Methods:
        """The methods of gRPC, of which the one for statistics waits for the counts."""
        method = methods.get(_MODEL_STATISTICS)
        if not isinstance(method, Unary):
            return methods
        handle = method.handle

        def wait(call: RpcCall, message: Body) -> None:
            data = bytes(message)
            self.then(lambda: handle(call, data))

        return {**methods, _MODEL_STATISTICS: replace(method, handle=wait)}

    def _waits(self, handler: Handler) -> Handler:
        def wait(exchange: Exchange, body: Body) -> None:
            # What the exchange was read into may be used again by then.
            data = bytearray(body)

            def handle() -> None:
                try:
                    handler(exchange, data)
                except Exception:
                    handler_failed(exchange)

            self.then(handle)

        return wait
