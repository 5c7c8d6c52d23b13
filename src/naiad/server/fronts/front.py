"""A front-end process: it listens on the ports of HTTP and gRPC, reads inference, and hands the rest to the engine."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import OptionError
from naiad.eventloop.sliced_work import SlicedWork
from naiad.frontends.access.settings import gates
from naiad.frontends.http.json_worker.pool import JsonWork
from naiad.frontends.http.server.content_coding import ContentCoding
from naiad.frontends.http.server.listener import HttpListener
from naiad.frontends.http.server.settings import http_tls
from naiad.frontends.inference.offload import use_one_thread
from naiad.frontends.net.file_watcher import FileReloader
from naiad.frontends.net.memory_shares import MemoryShares
from naiad.server.fronts.application import MODEL_INFER, FrontApplication, FrontInfer, FrontServices
from naiad.server.fronts.control import LISTENING as IS_LISTENING
from naiad.server.fronts.control import READY, Control
from naiad.server.fronts.grpc_relay import GrpcRelay
from naiad.server.fronts.http_relay import HttpRelay
from naiad.server.fronts.large_bodies import LargeBodies
from naiad.server.fronts.link import Link
from naiad.server.fronts.messages import COUNTS, DRAIN, DRAINED, LISTENING, LOADED, LOG, METHODS
from naiad.server.fronts.remote_engine import RemoteEngine
from naiad.server.fronts.replicas.replicas import Replicas
from naiad.server.limits import http_limits, request_budget, too_large_error
from naiad.server.reload import reload_grpc_tls, reload_http_tls, reload_keys, reloaded_paths
from naiad.telemetry.logs.server_log import LogSettings
from naiad.telemetry.metrics.host import usable_memory_bytes

if TYPE_CHECKING:
    from naiad.frontends.grpc.rpc.call import Method
    from naiad.frontends.http.server.state import TakeHttp2
    from naiad.frontends.metrics.extra_families import Port
    from naiad.lifecycle.loading.load_version import LoadSettings
    from naiad.options import ServerOptions
    from naiad.server.build import Frontend
    from naiad.telemetry.logs.server_log import ServerLog

logger = logging.getLogger("naiad")

_FOR_GRPC: Final = tuple(
    f"naiad.frontends.grpc.{name}" for name in ("settings", "v2.infer", "v2.infer_reader", "grpcio.transport")
)
COUNT_EVERY_S: Final = 1.0
"""How often connections and counters are sent to the engine's process, for its metrics page."""


class FrontProcess:
    """Serves until the engine's process drains it, a signal stops it, or the main process ends.

    Args:
        options: with the numbers of the ports, and ``--reuse-http-port`` and ``--reuse-grpc-port``.
        control: to the main process.
        log: that of this process.
    """

    def __init__(self, options: ServerOptions, control: socket.socket, log: ServerLog) -> None:
        self._options = options
        self._log = log
        self._control_socket = control
        # The memory is that of the machine, which all front ends share.
        usable = usable_memory_bytes() // options.frontend_count
        self._shares = MemoryShares.of(usable, options.max_in_flight_bytes)
        self._budget = request_budget(options, self._shares)
        replica_budget = request_budget(options, self._shares)
        self._replicas = Replicas(replica_budget, self._replica_settings, lambda model: self._engine.forget(model))
        self._engine = RemoteEngine(self._budget, self._replicas)
        self._http = HttpRelay(LargeBodies(self._budget))
        self._grpc = GrpcRelay(LargeBodies(self._budget))
        self._json_work = JsonWork(self._budget, SlicedWork())
        self._gates = gates(options)
        self._reloader = FileReloader(reloaded_paths(options))
        self._listeners: list[Frontend] = []
        self._ports: dict[str, Port] = {}
        self._titles: dict[str, str] = {}
        reload_keys(self._reloader, options, self._gates.keys, self._listeners)
        self._methods: dict[str, Method] = {}
        self._link: Link | None = None
        self._is_draining = self._is_recovering = False
        self._sent: tuple[object, ...] = ()
        self._refused = self._all_refused()
        self._cancelled = (0, 0, 0)
        self._handled = (0, 0)
        self._known = asyncio.Event()
        self._stop = asyncio.Event()
        self._stop_timeout_s = float(options.exit_timeout_secs)

    async def run(self) -> int:
        """Serve; returns the exit code.

        Raises:
            OptionError: a port or a file that an option names cannot be used.
        """
        loop = asyncio.get_running_loop()
        use_one_thread(loop)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        # Sent to all processes where the engine's opens the log file again.
        if self._reloader.has_files or self._options.log_file:
            loop.add_signal_handler(signal.SIGHUP, self._reloader.reload)
        control = Control(self._control_socket, self._take_link, self._stop_at_once)
        control.send(READY)
        counting = None
        try:
            await self._first(self._known)
            if not self._stop.is_set():
                await self._listen()
                control.send(IS_LISTENING)
                self._report()
                self._reloader.start()
                counting = loop.call_later(COUNT_EVERY_S, self._count_again)
                await self._stop.wait()
            in_time = await self._drain()
            await self._replicas.close()
            if self._link is not None:
                self._count()
                self._link.post((DRAINED, in_time))
                # The link sends at the end of the turn.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            return 0 if in_time else 1
        finally:
            if counting is not None:
                counting.cancel()
            control.close()
            for listener in self._listeners:
                listener.abort()
            self._reloader.close()
            self._json_work.close()
            if self._link is not None:
                self._link.close()

    def _replica_settings(self) -> LoadSettings:
        # Imported here: a front end without replicas does not pay for it.
        from naiad.server.load_settings import replica_settings

        return replica_settings(self._options, self._replicas.budget)

    async def _first(self, event: asyncio.Event) -> None:
        """Wait for ``event``, or for the end."""
        waits = [asyncio.ensure_future(e.wait()) for e in (event, self._stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _drain(self) -> bool:
        self._is_draining = True
        return all(await asyncio.gather(*(listener.drain(self._stop_timeout_s) for listener in self._listeners)))

    def _stop_at_once(self) -> None:
        """The main process has ended: nobody would start what is missing."""
        self._stop_timeout_s = 0.0
        self._stop.set()

    # Listeners

    async def _listen(self) -> None:
        options = self._options
        take_http2 = await self._listen_grpc() if options.serves_grpc else None
        if options.allow_http:
            await self._listen_http(take_http2)

    async def _start(self, listener: Frontend, title: str) -> None:
        await listener.start()
        self._listeners.append(listener)
        if title:
            self._titles[title] = listener.address

    async def _listen_grpc(self) -> TakeHttp2 | None:
        # Imported here: a server without gRPC does not pay for it.
        from naiad.frontends.grpc.settings import grpc_listener, grpcio_transport

        options, shares, cancelled = self._options, self._shares, self._budget.cancelled
        by_grpcio = options.allow_grpc and options.grpc_transport == "grpcio"
        if by_grpcio:
            transport = grpcio_transport(options, shares, self._methods, None, cancelled)
            await self._start(transport, "GRPCInferenceService")
            reload_grpc_tls(self._reloader, options, transport)
            if not options.http_port_serves_grpc:
                return None
        listener = grpc_listener(options, shares, self._methods, None, cancelled)
        has_port = options.allow_grpc and not by_grpcio
        await self._start(listener, "GRPCInferenceService" if has_port else "")
        self._ports["grpc"] = listener
        if has_port:
            reload_grpc_tls(self._reloader, options, listener)
        return listener.take if options.http_port_serves_grpc else None

    async def _listen_http(self, take_http2: TakeHttp2 | None) -> None:
        options = self._options
        coding = ContentCoding(options.http_max_input_size, self._budget, too_large_error(options))
        services = FrontServices(self._engine, self._json_work)
        reads_inference = not options.http_header_forward_pattern
        listener = HttpListener(
            FrontApplication(services, self._http, coding, self._gates.http, reads_inference),
            options.http_address,
            options.http_port,
            limits=http_limits(options, self._shares),
            reuse_port=options.reuse_http_port,
            take_http2=take_http2,
            ssl=http_tls(options),
            budget=self._budget,
        )
        await self._start(listener, "HTTPService")
        self._ports["http"] = listener
        reload_http_tls(self._reloader, options, listener)

    # The engine's process

    def _take_link(self, connection: socket.socket) -> None:
        # A new one replaces the one before: the engine's process was started again.
        self._lose_link()
        loop = asyncio.get_running_loop()
        handlers = {
            **self._engine.handlers(),
            **self._http.handlers(),
            **self._grpc.handlers(),
            METHODS: self._take_methods,
            DRAIN: self._take_drain,
            LOADED: self._take_loaded,
            LOG: self._take_log,
        }
        link = self._link = Link("the engine's process", connection, loop, handlers, self._lose_link)
        self._engine.connect(link)
        if not self._is_recovering:
            self._take_loaded()
        if self._titles:
            self._report()

    def _lose_link(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        link.close()
        for part in (self._engine, self._http, self._grpc):
            part.disconnect()
        # An engine that has just been started again would say that there are no models.
        self._is_recovering = bool(self._titles)
        if self._is_draining:
            self._stop.set()

    def _take_loaded(self) -> None:
        self._is_recovering = False
        if self._link is not None:
            self._http.connect(self._link)
            self._grpc.connect(self._link)

    def _take_log(self, settings: tuple[Any, ...]) -> None:
        self._log.change(LogSettings(*settings))

    def _report(self) -> None:
        if self._link is not None:
            self._link.post((LISTENING, self._titles))
            self._sent = ()
            self._count()

    def _take_methods(self, methods: Sequence[tuple[str, bool, bool]]) -> None:
        # All engines of a server have the same methods, and listeners look at this dictionary for each call.
        if not self._methods:
            for path, is_stream, compressed in methods:
                self._methods[path] = self._grpc.method(path, is_stream, compressed)
            if MODEL_INFER in self._methods and not self._options.grpc_header_forward_pattern:
                self._methods[MODEL_INFER] = self._infer_method()
        self._known.set()

    def _infer_method(self) -> Method:
        from naiad.frontends.grpc.rpc.call import Unary
        from naiad.frontends.grpc.v2.infer import GrpcInferHandler
        from naiad.frontends.grpc.v2.infer_reader import RequestDecoder
        from naiad.frontends.grpc.v2.message_arena import find_arena

        decoder = RequestDecoder(self._engine, serves_decoupled=False)
        inner = GrpcInferHandler(decoder, self._engine.regions)
        handle = FrontInfer(self._engine, inner, self._grpc, self._gates.grpc)
        find = partial(find_arena, self._engine)
        return Unary(handle, compressed=True, check_room=self._budget.check, find_arena=find)

    def _take_drain(self, timeout_s: float) -> None:
        self._stop_timeout_s = timeout_s
        self._stop.set()

    # Counters

    def _count_again(self) -> None:
        asyncio.get_running_loop().call_later(COUNT_EVERY_S, self._count_again)
        self._count()

    def _all_refused(self) -> dict[str, int]:
        of_replicas = self._replicas.budget.refused
        return {bound: count + of_replicas[bound] for bound, count in self._budget.refused.items()}

    def _count(self) -> None:
        if self._link is None:
            return
        self._replicas.report()
        counted = {protocol: port.connection_count for protocol, port in self._ports.items()}
        all_refused = self._all_refused()
        refused = {k: v - self._refused[k] for k, v in all_refused.items() if v > self._refused[k]}
        found = self._budget.cancelled
        cancelled = found.client_cancel, found.disconnect, found.deadline
        grown = tuple(now - before for now, before in zip(cancelled, self._cancelled, strict=True))
        handled = self._engine.sent, self._http.handed_over + self._grpc.handed_over
        requests = tuple(now - before for now, before in zip(handled, self._handled, strict=True))
        if self._sent == (counted,) and not refused and not any(grown) and not any(requests):
            return
        self._handled = handled
        self._sent = (counted,)
        self._refused = all_refused
        self._cancelled = cancelled
        self._link.post((COUNTS, counted, refused, grown, requests))


def _shared(options: ServerOptions) -> ServerOptions:
    """The options of one front end: each has its part of the connections, since none knows those of the others."""
    count = options.frontend_count
    return replace(
        options,
        http_max_connections=-(-options.http_max_connections // count),
        grpc_max_connections=-(-options.grpc_max_connections // count),
    )


def prepare(serves_grpc: bool) -> None:
    """Import what a front end needs beside this module, so that a spare process listens as soon as it has its role."""
    from naiad.server.process import loop_factory

    loop_factory()
    # Both import their packages with the first call.
    usable_memory_bytes()
    for module in _FOR_GRPC if serves_grpc else ():
        import_module(module)


def run_front(options: ServerOptions, control: socket.socket, log: ServerLog) -> int:
    """Run a front-end process; returns its exit code."""
    options = _shared(options)
    from naiad.backend_api.host_policy import HostPolicies
    from naiad.server.process import allow_open_files, place_frontend, run_on_loop

    allow_open_files(options.http_max_connections, options.grpc_max_connections if options.serves_grpc else 0, 0)

    async def serve() -> int:
        place_frontend(HostPolicies.of(options.host_policies))
        return await FrontProcess(options, control, log).run()

    try:
        return run_on_loop(serve())
    except OptionError as error:
        logger.error("error: creating server: %s", error)
        return 1
