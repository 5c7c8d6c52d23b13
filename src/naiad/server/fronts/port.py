"""The engine's side of all front-end processes: it takes the place of the listeners of HTTP and gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import astuple
from typing import TYPE_CHECKING, Final

from naiad.errors import InternalError
from naiad.frontends.grpc.rpc.call import Streaming
from naiad.frontends.http.server.access_log import with_request_log
from naiad.server.build import Frontend, Parts, grpc_methods, http_application, metrics_listener
from naiad.server.fronts.control import READY, Control
from naiad.server.fronts.grpc_session import GrpcSession
from naiad.server.fronts.http_session import HttpSession
from naiad.server.fronts.inference_session import InferenceSession
from naiad.server.fronts.link import Link
from naiad.server.fronts.messages import COUNTS, DRAIN, DRAINED, LISTENING, LOADED, LOG, METHODS, MODELS
from naiad.server.fronts.model_table import ModelTable, TableChange
from naiad.server.fronts.replicas.fresh_counts import FreshCounts
from naiad.server.fronts.replicas.rules import ReplicaRules
from naiad.server.fronts.replicas.session import ReplicaSession
from naiad.server.listeners import further_ports

if TYPE_CHECKING:
    from naiad.frontends.grpc.rpc.call import Methods
    from naiad.frontends.http.server.exchange import Application
    from naiad.telemetry.logs.server_log import LogSettings

logger = logging.getLogger("naiad")

START_S: Final = 60.0
"""How long the front ends may take to listen, in seconds."""
DRAIN_GRACE_S: Final = 1.0
"""How much longer than its connections a front-end process may take to say that it has drained."""


class Connections:
    """The connections of one protocol in all front-end processes, for the metrics page."""

    def __init__(self) -> None:
        self.by_front: dict[int, int] = {}

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return sum(self.by_front.values())


class FrontSession:
    """One front-end process, as the engine's process sees it.

    Attributes:
        addresses: its addresses by title, once it listens.
        drained: whether it finished its requests in time; None while it has not said.
    """

    def __init__(self, port: FrontPort, connection: socket.socket, parts: Parts) -> None:
        self.addresses: dict[str, str] = {}
        self.drained: bool | None = None
        self._port = port
        self._parts = parts
        self.inference = InferenceSession(parts.engine, port.table)
        self.replicas = ReplicaSession(
            port.table.replicas, self._count_run, parts.replicas_in_flight, port.counts.reported
        )
        self.http = HttpSession(port.application)
        self._grpc = GrpcSession(port.methods, None if parts.gates.grpc.is_open else parts.gates.grpc)
        handlers = {
            **self.inference.handlers(),
            **self.http.handlers(),
            **self._grpc.handlers(),
            **self.replicas.handlers(),
            LISTENING: self._take_listening,
            COUNTS: self._take_counts,
            DRAINED: self._take_drained,
        }
        self.link = Link("a front-end process", connection, asyncio.get_running_loop(), handlers, self._lost)
        for session in (self.inference, self.http, self._grpc, self.replicas):
            session.connect(self.link)
        self.link.give(port.table.generation.descriptor())
        methods = [(path, isinstance(m, Streaming), m.compressed) for path, m in port.methods.items()]
        self.link.post((METHODS, methods))
        self.announce(port.table.all())
        self.link.post((LOG, port.log_settings))
        if parts.manager.loaded:
            self.link.post((LOADED,))

    def close(self) -> None:
        """Close the link; the requests of the front end are cancelled."""
        self.link.close()
        for session in (self.inference, self.http, self._grpc, self.replicas):
            session.close()
        self._port.counts.forget(self.replicas)
        for counted in self._port.connections.values():
            counted.by_front.pop(id(self), None)

    def announce(self, change: TableChange) -> None:
        """Tell the front end what has changed among the models."""
        self.replicas.announce(change.replicas)
        self.link.post((MODELS, change.gone, change.fresh, change.generation))

    def _count_run(self, requests: int) -> None:
        self._parts.front_requests["run"] += requests

    def _lost(self) -> None:
        self.close()
        self._port.forget(self)

    def _take_listening(self, addresses: dict[str, str]) -> None:
        self.addresses = addresses
        self._port.changed.set()

    def _take_counts(
        self,
        connections: dict[str, int],
        refused: dict[str, int],
        cancelled: tuple[int, int, int],
        requests: tuple[int, int],
    ) -> None:
        for protocol, count in connections.items():
            self._port.connections[protocol].by_front[id(self)] = count
        budget = self._parts.budget
        for bound, count in refused.items():
            budget.refused[bound] += count
        budget.cancelled.client_cancel += cancelled[0]
        budget.cancelled.disconnect += cancelled[1]
        budget.cancelled.deadline += cancelled[2]
        for kind, count in zip(("read", "handed_over"), requests, strict=True):
            self._parts.front_requests[kind] += count

    def _take_drained(self, in_time: bool) -> None:
        self.drained = in_time
        self._port.changed.set()


class FrontPort:
    """The ``Frontend`` of the engine's process: it serves what the front-end processes send.

    Attributes:
        application: answers the HTTP requests that come as they were; ``methods`` the calls.
        connections: by protocol.
        counts: has the counts of replicas before statistics are read.
        log_settings: the values of ``LogSettings``.
        changed: set whenever a front end listens, has drained, or is gone.
    """

    def __init__(self, parts: Parts, control: socket.socket) -> None:
        self._parts = parts
        self._control_socket = control
        self._control: Control | None = None
        self._sessions: list[FrontSession] = []
        self.changed = asyncio.Event()
        rules = ReplicaRules.of(parts.options, lambda model: parts.engine.tuner.of(model) is not None)
        self.table = ModelTable(parts.engine, parts.manager, parts.tracing, rules)
        self.table.on_change.append(self._announce)
        self.counts = FreshCounts(self._sessions)
        router, self._close_router = http_application(parts)
        self._inner = self.counts.before_statistics(router)
        self.application: Application = self._inner
        self.methods: Methods = self.counts.before_calls(grpc_methods(parts)) if parts.options.serves_grpc else {}
        self.connections = {name: Connections() for name in _protocols(parts)}
        parts.ports.update(self.connections)
        parts.front_requests.update(run=0, read=0, handed_over=0)
        self._follow_log(parts.log.settings)
        parts.log.when_changed.append(self._follow_log)
        parts.on_loaded.append(self._loaded)

    @property
    def address(self) -> str:
        """The number of front ends, in words."""
        return f"{len(self._sessions)} front-end processes"

    async def start(self) -> None:
        """Wait until all front-end processes listen.

        Raises:
            InternalError: they take too long.
        """
        self._control = Control(self._control_socket, self._take_link, _stop_this_process)
        # The server handles signals before it starts any listener.
        self._control.send(READY)
        wanted = self._parts.options.frontend_count
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                while sum(bool(s.addresses) for s in self._sessions) < wanted:
                    self.changed.clear()
                    await self.changed.wait()
        listening = [s for s in self._sessions if s.addresses]
        if len(listening) < wanted:
            raise InternalError(f"{len(listening)} of {wanted} front-end processes listen after {START_S:.0f} s")
        for title, address in listening[0].addresses.items():
            logger.info("Started %s at %s", title, address)

    async def drain(self, timeout_s: float) -> bool:
        """Let every front end finish its requests and close its connections; False when that took too long."""
        for session in self._sessions:
            session.link.post((DRAIN, timeout_s))
        draining = list(self._sessions)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s + DRAIN_GRACE_S):
                while any(s.drained is None and s.link.is_open for s in draining):
                    self.changed.clear()
                    await self.changed.wait()
        return all(s.drained is not False and not (s.drained is None and s.link.is_open) for s in draining)

    def abort(self) -> None:
        """Close all links, and end what the application has started."""
        if self._control is not None:
            self._control.close()
            self._control = None
        for session in self._sessions:
            session.close()
        self._sessions.clear()
        self.counts.close()
        self.table.generation.close()
        self._close_router()

    def forget_heads(self) -> None:
        """Decide anew for every further request whether it may pass."""
        for session in self._sessions:
            session.http.forget_heads()

    def forget(self, session: FrontSession) -> None:
        """A front-end process is gone."""
        if session in self._sessions:
            self._sessions.remove(session)
        self.changed.set()

    def _take_link(self, connection: socket.socket) -> None:
        self._sessions.append(FrontSession(self, connection, self._parts))

    def _announce(self, change: TableChange) -> None:
        for session in self._sessions:
            session.announce(change)

    def _loaded(self) -> None:
        for session in self._sessions:
            session.link.post((LOADED,))

    def _follow_log(self, settings: LogSettings) -> None:
        # A verbose log has a line about each request, which only the application here writes.
        self.application = with_request_log(self._inner, settings.log_verbose_level)
        self.log_settings = astuple(settings)
        for session in self._sessions:
            session.link.post((LOG, self.log_settings))
        self.table.serve(settings.log_verbose_level <= 0)
        for session in self._sessions:
            session.http.serve(self.application)


def _protocols(parts: Parts) -> list[str]:
    options = parts.options
    return ["grpc"] * options.serves_grpc + ["http"] * options.allow_http


def _stop_this_process() -> None:
    logger.error("the main process has ended: stopping")
    os.kill(os.getpid(), signal.SIGTERM)


def engine_listeners(control: socket.socket) -> Callable[[Parts], Iterator[tuple[Frontend, str]]]:
    """What makes the listeners of the engine's process, as ``all_listeners`` does for a server of one process."""

    def listeners(parts: Parts) -> Iterator[tuple[Frontend, str]]:
        port = FrontPort(parts, control)
        yield port, ""
        # Their requests are few, and need what only the engine has: models that come and go.
        yield from further_ports(parts, port.counts.before_statistics, port.counts.before_all)
        if parts.options.allow_metrics:
            yield metrics_listener(parts, port.counts.before_all), "Metrics Service"

    return listeners
