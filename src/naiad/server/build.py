"""The parts of one server, assembled from its options: cache, models, engine and listeners."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from naiad.cache.local import LocalCache
from naiad.cache.redis import RedisCache
from naiad.engine.engine import Engine
from naiad.frontends.access.settings import Gates, gates
from naiad.frontends.dashboard.access import OFF, DashboardAccess
from naiad.frontends.dashboard.application import Dashboard
from naiad.frontends.http.server.access_gate import guarded
from naiad.frontends.http.server.access_log import with_request_log
from naiad.frontends.http.server.listener import HttpListener
from naiad.frontends.http.server.settings import http_tls, surrounded
from naiad.frontends.http.v2.router import EXPOSED_HEADERS, Router
from naiad.frontends.inference.header_forwarding import HeaderForwarding
from naiad.frontends.net.file_watcher import FileReloader
from naiad.frontends.net.memory_shares import MemoryShares
from naiad.gpus.access import GpuAccess
from naiad.gpus.figures import GpuFigures
from naiad.lifecycle.manager import ModelManager
from naiad.lifecycle.memory.budget import MemorySettings
from naiad.lifecycle.tuning.tuner import ModelTuner
from naiad.options import ServerOptions
from naiad.options.latency_objective import read_objective
from naiad.options.metrics_config import HISTOGRAMS, QUANTILES, SUMMARIES
from naiad.options.trace_config import OPENTELEMETRY, trace_mode
from naiad.repository.agents.agents import AgentDirectory
from naiad.repository.agents.mirror import AgentMirror
from naiad.repository.catalog import Catalog, open_catalog
from naiad.repository.changes.watch import Watch
from naiad.scheduling.admission import RequestBudget
from naiad.server.limits import http_limits, request_budget, too_large_error
from naiad.server.load_settings import NO_BACKENDS, OwnBackends, load_settings
from naiad.server.reload import reload_grpc_tls, reload_http_tls, reloaded_paths
from naiad.server.request_log import follow_log
from naiad.shared_memory.registry import RegionRegistry
from naiad.telemetry.logs.server_log import ServerLog
from naiad.telemetry.metrics.host import usable_memory_bytes
from naiad.telemetry.metrics.latencies import DEFAULT_QUANTILES, LatencySettings
from naiad.telemetry.slow.recorder import SlowRequests
from naiad.telemetry.tracing.settings_store import Tracing

if TYPE_CHECKING:
    from naiad.frontends.grpc.rpc.call import Methods
    from naiad.frontends.http.server.exchange import Application
    from naiad.frontends.http.server.state import TakeHttp2
    from naiad.frontends.metrics.extra_families import Port
    from naiad.frontends.metrics.page import MetricsApplication

TRACE_FILE_S = 5.0
"""Seconds that the shutdown waits for traces that are not written yet."""


class Frontend(Protocol):
    """A listener that serves one port; see ``frontends/net/listener.py``."""

    @property
    def address(self) -> str:
        """``host:port`` for the log."""

    async def start(self) -> None:
        """Open the port and serve.

        Raises:
            OptionError: the address cannot be used.
        """

    async def drain(self, timeout_s: float) -> bool:
        """Finish the requests in flight and close; False when that took longer than ``timeout_s``."""

    def abort(self) -> None:
        """Close every connection at once."""

    def forget_heads(self) -> None:
        """Drop cached request heads, so that every further request is checked for access again."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that a server is assembled from, except its listeners.

    Attributes:
        watch: the repository watch of ``--model-control-mode=poll``; None in other modes.
        shares: the parts of the process's memory that the ports may use.
        reloader: reads keys and certificates again when their files change.
        gpu_figures: reads the figures of GPUs for the metrics; None with ``--allow-gpu-metrics=false``.
        ports: the listeners by their protocols, as they are made.
        grpc_ports: the number of the gRPC port, once it is open; empty without one, and in front-end processes.
        on_loaded: called once every model of the start is loaded or has failed.
        start_checks: called after that; each returns why the server cannot serve, "" if it can.
        front_requests: how many requests front-end processes have run, have read, and have handed over; empty without
            them.
        replicas_in_flight: by front-end process, the requests that it runs itself, and their bytes.
    """

    options: ServerOptions
    log: ServerLog
    cache: LocalCache | RedisCache | None
    shares: MemoryShares
    budget: RequestBudget
    catalog: Catalog
    agent_mirror: AgentMirror
    manager: ModelManager
    watch: Watch | None
    regions: RegionRegistry
    tracing: Tracing
    engine: Engine
    reloader: FileReloader
    gates: Gates
    gpu_figures: GpuFigures | None = None
    ports: dict[str, Port] = field(default_factory=dict)
    grpc_ports: list[int] = field(default_factory=list)
    front_requests: dict[str, int] = field(default_factory=dict)
    replicas_in_flight: dict[int, tuple[int, int]] = field(default_factory=dict)
    on_loaded: list[Callable[[], object]] = field(default_factory=list)
    start_checks: list[Callable[[], str]] = field(default_factory=list)

    def start_problem(self) -> str:
        """Why the server cannot serve with the models that are loaded; "" if it can."""
        return next(filter(None, (check() for check in self.start_checks)), "")

    def close(self) -> None:
        """Stop the threads of the parts and release their memory and files."""
        if self.gpu_figures is not None:
            self.gpu_figures.stop()
        self.reloader.close()
        self.engine.tuner.close()
        if self.engine.slow is not None:
            self.engine.slow.watch.close()
        self.regions.close()
        self.catalog.close()
        self.agent_mirror.close()
        self.tracing.close(TRACE_FILE_S)
        if isinstance(self.cache, RedisCache):
            self.cache.close()


def build(options: ServerOptions, log: ServerLog, own_backends: OwnBackends = NO_BACKENDS) -> Parts:
    """Assemble the parts that ``options`` ask for. Nothing is started.

    Args:
        own_backends: the backends that the program brings which embeds the server, by name.

    Raises:
        OptionError: a file or a repository that an option names cannot be used.
    """
    cache = _cache(options)
    shares = MemoryShares.of(usable_memory_bytes(), options.max_in_flight_bytes)
    budget = request_budget(options, shares)
    catalog = open_catalog(
        options.model_repository,
        options.paths,
        options.model_repository_mirror,
        options.model_repository_mirror_size,
        options.model_namespacing,
    )
    agent_mirror = AgentMirror(options.model_repository_mirror, options.model_repository_mirror_size)
    tracing = Tracing.from_options(options)
    settings = load_settings(
        options,
        cache,
        budget,
        own_backends,
        AgentDirectory(Path(options.repoagent_directory), options.repoagent_timeout_secs, agent_mirror),
    )
    manager = ModelManager(
        settings,
        options.model_load_thread_count,
        catalog,
        options.model_control_mode == "explicit",
        MemorySettings(options.model_memory_budget, options.model_idle_unload_secs, options.load_on_demand_secs),
    )
    regions = RegionRegistry(options.allow_client_shm)
    objective = read_objective(options.slo) if options.slo else None
    return Parts(
        options=options,
        log=log,
        cache=cache,
        shares=shares,
        budget=budget,
        catalog=catalog,
        agent_mirror=agent_mirror,
        manager=manager,
        watch=Watch(catalog) if options.polls else None,
        regions=regions,
        tracing=tracing,
        engine=Engine(
            manager,
            options.id,
            options.strict_readiness,
            log,
            tracing,
            regions,
            _latencies(options),
            _slow(options),
            ModelTuner(manager, objective, settings.usable_cores),
        ),
        reloader=FileReloader(reloaded_paths(options)),
        gates=gates(options),
        gpu_figures=GpuFigures(options.metrics_interval_ms) if options.allow_gpu_metrics else None,
    )


def listeners(parts: Parts) -> Iterator[tuple[Frontend, str]]:
    """The listeners of HTTP, gRPC and metrics that the options ask for, each with its title for the log; "" for one
    without a port.

    Each is made only once the one before it has been started: the HTTP port hands HTTP/2 connections to the gRPC
    listener, and a port that is taken is reported before certificates of the next are read.

    Raises:
        OptionError: an option of a listener, such as a certificate, cannot be used.
    """
    options = parts.options
    take_http2 = (yield from _grpc_listeners(parts)) if options.serves_grpc else None
    if options.allow_http:
        yield _http_listener(parts, take_http2), "HTTPService"
    if options.allow_metrics:
        yield metrics_listener(parts), "Metrics Service"


def _grpc_listeners(parts: Parts) -> Generator[tuple[Frontend, str], None, TakeHttp2 | None]:
    """The gRPC listeners; returns the function that takes HTTP/2 connections from the HTTP port, if there is one."""
    # Imported here: a server without gRPC does not pay for it.
    from naiad.frontends.grpc.settings import grpc_listener, grpcio_transport

    options = parts.options
    methods = grpc_methods(parts)
    # Without keys and restrictions no call passes a gate at all.
    gate = None if parts.gates.grpc.is_open else parts.gates.grpc
    by_grpcio = options.allow_grpc and options.grpc_transport == "grpcio"
    if by_grpcio:
        transport = grpcio_transport(options, parts.shares, methods, gate, parts.budget.cancelled)
        yield transport, "GRPCInferenceService"
        parts.grpc_ports.append(transport.port)
        reload_grpc_tls(parts.reloader, options, transport)
        if not options.http_port_serves_grpc:
            return None
    # grpcio takes no connections from another port: beside it, this listener serves those of the HTTP port.
    listener = grpc_listener(options, parts.shares, methods, gate, parts.budget.cancelled)
    parts.ports["grpc"] = listener
    # Whether calls are logged is decided once per head.
    parts.log.when_changed.append(lambda settings: listener.forget_heads())
    has_port = options.allow_grpc and not by_grpcio
    yield listener, "GRPCInferenceService" if has_port else ""
    if has_port:
        parts.grpc_ports.append(listener.port)
        reload_grpc_tls(parts.reloader, options, listener)
    return listener.take if options.http_port_serves_grpc else None


def grpc_methods(parts: Parts) -> Methods:
    """All methods of gRPC, on the engine of ``parts``."""
    from naiad.frontends.grpc.v2.services import make_methods

    options = parts.options
    return make_methods(
        parts.engine, options.grpc_max_response_pool_size, _forwarding(options.grpc_header_forward_pattern)
    )


def http_application(parts: Parts) -> tuple[Application, Callable[[], None]]:
    """The whole HTTP API behind its gate, and what ends the workers that it has started."""
    options = parts.options
    inner = Router(
        parts.engine,
        options.http_max_input_size,
        _forwarding(options.http_header_forward_pattern),
        too_large_error(options),
    )
    router = surrounded(inner, options, parts.gates.http, EXPOSED_HEADERS)
    dashboard = _dashboard(parts)
    if dashboard is not None:
        router = dashboard.before(router)
    return router, partial(_close_http, inner, dashboard)


def _http_listener(parts: Parts, take_http2: TakeHttp2 | None) -> HttpListener:
    options = parts.options
    router, close = http_application(parts)
    listener = HttpListener(
        with_request_log(router, parts.log.settings.log_verbose_level),
        options.http_address,
        options.http_port,
        limits=http_limits(options, parts.shares),
        reuse_port=options.reuse_http_port,
        take_http2=take_http2,
        ssl=http_tls(options),
        budget=parts.budget,
        on_abort=close,
    )
    parts.ports["http"] = listener
    reload_http_tls(parts.reloader, options, listener)

    follow_log(parts.log, listener, router)
    return listener


def _dashboard(parts: Parts) -> Dashboard | None:
    options = parts.options
    if options.dashboard == OFF:
        return None
    gate = parts.gates.http
    access = DashboardAccess(options.dashboard, gate, parts.gates.keys is not None)
    gpus = GpuAccess.of(options.min_supported_compute_capability, options.model_load_gpu_limit)
    grpc = None
    if options.allow_grpc:
        # Front-end processes get the number of a free port in their options.
        grpc = (parts.grpc_ports or [options.grpc_port])[0], options.grpc_use_ssl
    elif options.http_port_serves_grpc:
        grpc = options.http_port, options.http_uses_tls
    return Dashboard(parts.engine, access, gpus.usable, loads=not options.polls, grpc=grpc)


def _close_http(router: Router, dashboard: Dashboard | None) -> None:
    router.close()
    if dashboard is not None:
        dashboard.close()


def metrics_application(parts: Parts) -> MetricsApplication:
    """What writes the metrics page."""
    # Imported here: a server without metrics does not pay for it.
    from naiad.frontends.metrics.page import MetricsApplication
    from naiad.telemetry.metrics.page import PageSettings

    options = parts.options
    if parts.gpu_figures is not None:
        parts.gpu_figures.start()
    latencies = _latencies(options)
    return MetricsApplication(
        parts.engine,
        PageSettings(
            options.allow_cpu_metrics,
            options.counter_latencies,
            options.metrics_interval_ms,
            latencies,
            exemplars=latencies.histograms and trace_mode(options.trace_config) == OPENTELEMETRY,
        ),
        custom=parts.manager.custom_metrics,
        cache=parts.cache.figures if parts.cache is not None else None,
        gpus=parts.gpu_figures,
        pinned_bytes=options.pinned_memory_pool_byte_size,
        ports=parts.ports,
        front_requests=parts.front_requests,
        replicas_in_flight=parts.replicas_in_flight,
    )


def _slow(options: ServerOptions) -> SlowRequests | None:
    return SlowRequests(options.slow_requests) if options.slow_requests else None


def _latencies(options: ServerOptions) -> LatencySettings:
    """The distributions that the metrics page shows; a program reads that page also where it has no port."""
    quantiles = options.metrics_setting(QUANTILES, False)
    shares = DEFAULT_QUANTILES if isinstance(quantiles, bool) else tuple(share for share, _ in quantiles)
    return LatencySettings(
        options.metrics_setting(SUMMARIES, False) is True, options.metrics_setting(HISTOGRAMS, False) is True, shares
    )


def metrics_listener(
    parts: Parts, around: Callable[[Application], Application] = lambda application: application
) -> HttpListener:
    """The listener of the metrics port, with ``around`` its application."""
    options = parts.options
    application: Application = metrics_application(parts)
    guard = guarded(around(application), parts.gates.metrics, lambda target: "statistics")
    return HttpListener(guard, options.metrics_address, options.metrics_port, option="--metrics-port")


def _cache(options: ServerOptions) -> LocalCache | RedisCache | None:
    redis = options.redis_cache(os.environ)
    if redis is not None:
        return RedisCache(redis)
    return LocalCache(options.local_cache_bytes) if options.local_cache_bytes else None


def _forwarding(pattern: str) -> HeaderForwarding | None:
    return HeaderForwarding(pattern) if pattern else None
