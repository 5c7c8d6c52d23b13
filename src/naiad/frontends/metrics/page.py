"""The metrics port: Prometheus text at ``/metrics``, an empty 200 for any other path, as the reference does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from naiad.engine.engine import Engine
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import TEXT, send_wrong_method
from naiad.frontends.http.server.sliced_response import send_in_slices
from naiad.frontends.metrics.extra_families import Port, own_families
from naiad.frontends.metrics.gpu_families import gpu_families, gpu_uuid
from naiad.gpus.figures import GpuFigures
from naiad.gpus.pinned import POOL
from naiad.telemetry.metrics import openmetrics
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.telemetry.metrics.load import LoadFigures
from naiad.telemetry.metrics.page import CONTENT_TYPE, InFlight, ModelSeries, PageSettings, render
from naiad.telemetry.metrics.server_statistics import CacheFigures
from naiad.wire.http1.head import RequestHead


class MetricsApplication:
    """Answers the requests of the metrics port from the engine's own counters, which it reads at each scrape.

    ``custom`` holds the metrics of the models themselves, ``cache`` the figures of the response cache, ``gpus`` those
    of the GPUs, ``pinned_bytes`` is the most pinned memory for copies to them, ``ports`` the listeners by their
    protocols, ``front_requests`` the requests of front-end processes by how they were handled,
    ``replicas_in_flight`` those that each of them runs now and their bytes.
    """

    def __init__(
        self,
        engine: Engine,
        settings: PageSettings,
        custom: CustomMetrics | None = None,
        cache: CacheFigures | None = None,
        gpus: GpuFigures | None = None,
        pinned_bytes: int = 0,
        ports: Mapping[str, Port] | None = None,
        front_requests: Mapping[str, int] | None = None,
        replicas_in_flight: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        self._replicas_in_flight = {} if replicas_in_flight is None else replicas_in_flight
        self._front_requests = front_requests or {}
        self._ports = {} if ports is None else ports
        self._load = LoadFigures()
        self._engine = engine
        self._custom = custom
        self._cache = cache
        self._gpus = gpus
        self._pinned_bytes = pinned_bytes
        self._settings = settings

    def __call__(self, head: RequestHead) -> Handler:
        if head.method != "GET":
            return _method_not_allowed
        if head.target not in ("/metrics", "/metrics/"):
            return _nothing_here
        accept = head.headers.get("accept", "")
        wants_openmetrics = openmetrics.wants_openmetrics(accept, self._settings.exemplars)
        return self._scrape_openmetrics if wants_openmetrics else self._scrape

    def _scrape(self, exchange: Exchange, body: Body) -> None:
        self._send(exchange, CONTENT_TYPE, self.parts())

    def _scrape_openmetrics(self, exchange: Exchange, body: Body) -> None:
        self._send(exchange, openmetrics.CONTENT_TYPE, self.parts(exemplars=True))

    def _send(self, exchange: Exchange, content_type: str, parts: Iterator[bytes]) -> None:
        def send(made: list[bytes]) -> None:
            exchange.send_status(200, content_type, b"".join(made))

        send_in_slices(self._engine.sliced_work, exchange, parts, send)

    def parts(self, exemplars: bool = False) -> Iterator[bytes]:
        """The page as it is now, with ``exemplars`` as OpenMetrics, in parts of less than a millisecond."""
        cached = self._cache is not None
        series = (
            ModelSeries(
                m.name,
                m.version,
                m.spec.metric_tags,
                m.statistics,
                cached and m.spec.is_cached,
                m.namespace,
                gpu_uuid=gpu_uuid(m.spec),
            )
            for m in self._engine.loaded_models()
        )
        return render(
            series,
            self._settings,
            custom=self._custom,
            cache=self._cache,
            in_flight=self._in_flight(),
            pinned=self._pinned(),
            more=chain(
                own_families(self._engine, self._ports, self._load, self._front_requests),
                gpu_families(() if self._gpus is None else self._gpus.samples),
            ),
            exemplars=exemplars,
        )

    def _in_flight(self) -> InFlight:
        budget = self._engine.budget
        elsewhere = self._replicas_in_flight.values()
        requests = budget.requests + sum(requests for requests, _ in elsewhere)
        size = budget.bytes + sum(size for _, size in elsewhere)
        return InFlight(requests, size, budget.refused, budget.cancelled.by_reason)

    def _pinned(self) -> tuple[int, int]:
        """The pinned memory of this process; none without a GPU."""
        has_gpus = self._gpus is not None and bool(self._gpus.samples)
        return (self._pinned_bytes, POOL.used_bytes) if has_gpus else (0, 0)


def _nothing_here(exchange: Exchange, body: Body) -> None:
    exchange.send_status(200, CONTENT_TYPE, b"")


def _method_not_allowed(exchange: Exchange, body: Body) -> None:
    send_wrong_method(exchange, "GET", TEXT)
