"""Traces as spans of OpenTelemetry, sent to a collector over OTLP/HTTP by a thread: the loop never waits for it.

Source of the spans, their names and attributes: ``tracer.cc`` of the reference. ``InferRequest`` is the request from
its arrival to its response, the span with the name of the model is its time in the model, ``compute`` is its run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from queue import Empty
from time import monotonic, monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import OptionError, first_line
from naiad.extras import how_to_install
from naiad.options.trace_config import BATCHING, OPENTELEMETRY, TraceSetting, batching_number
from naiad.telemetry.tracing.trace import Trace, TraceOutput
from naiad.telemetry.tracing.writer_thread import TraceThread

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

logger = logging.getLogger("naiad")

DEFAULT_URL: Final = "http://localhost:4318/v1/traces"
DEFAULT_RESOURCE: Final = {"service.name": "triton-inference-server"}
SPANS: Final = 3
"""Spans of one trace."""


@dataclass(frozen=True, slots=True)
class SpanSettings:
    """The settings of the exporter.

    Attributes:
        url: the address of the collector.
        resource: the attributes of the server in all spans.
        max_waiting: the most spans that wait to be sent; further spans are dropped and counted.
        delay_s: how long spans wait to be sent together with others.
        max_batch: the most spans that are sent together.
    """

    url: str = DEFAULT_URL
    resource: Mapping[str, str] | None = None
    max_waiting: int = BATCHING["bsp_max_queue_size"]
    delay_s: float = BATCHING["bsp_schedule_delay"] / 1000
    max_batch: int = BATCHING["bsp_max_export_batch_size"]


def span_settings(given: Iterable[TraceSetting], environment: Mapping[str, str]) -> SpanSettings:
    """The settings of ``--trace-config opentelemetry,...``, completed by the variables ``OTEL_BSP_...``.

    Raises:
        OptionError: the value of such a variable is not a number that the setting accepts.
    """
    values: dict[str, Any] = {}
    resource = dict(DEFAULT_RESOURCE)
    for item in given:
        if item.name == "resource":
            key, _, value = str(item.value).partition("=")
            resource[key] = value
        else:
            values[item.name] = item.value
    numbers = {
        name: int(values.get(name) or _from(environment, f"OTEL_{name.upper()}", default))
        for name, default in BATCHING.items()
    }
    return SpanSettings(
        values.get("url", DEFAULT_URL),
        resource,
        numbers["bsp_max_queue_size"],
        numbers["bsp_schedule_delay"] / 1000,
        numbers["bsp_max_export_batch_size"],
    )


def _from(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    try:
        return batching_number(text) if text else default
    except ValueError as error:
        raise OptionError(f"environment variable {name}: {error}") from None


class SpanExport:
    """Sends traces as spans; see the module."""

    mode = OPENTELEMETRY
    takes_tensors = False
    takes_parents = True

    def __init__(self, settings: SpanSettings) -> None:
        self._settings = settings
        self._thread: TraceThread[Trace] = TraceThread("naiad-spans", self._run, "sent")
        # The option counts spans, the queue traces.
        self._max_traces = max(1, settings.max_waiting // SPANS)
        self._has_failed = False

    def problem(self) -> str:
        """The missing package, with how to install it; "" when nothing is missing."""
        try:
            # Here, when the server starts, and not with the first trace: it takes long.
            for module in ("naiad.telemetry.tracing.spans", "opentelemetry.exporter.otlp.proto.http.trace_exporter"):
                import_module(module)
        except ImportError as error:
            return (
                "mode=opentelemetry needs OpenTelemetry's SDK and its OTLP exporter, which cannot be imported "
                f"({first_line(error)}); run: {how_to_install('otel')}"
            )
        return ""

    def shown(self) -> dict[str, str]:
        """The settings as the protocol shows them."""
        settings = self._settings
        return {
            "url": settings.url,
            "resource": ",".join(f"{key}={value}" for key, value in (settings.resource or {}).items()),
            "bsp_max_queue_size": str(settings.max_waiting),
            "bsp_schedule_delay": str(round(settings.delay_s * 1000)),
            "bsp_max_export_batch_size": str(settings.max_batch),
        }

    # On the loop

    def put(self, output: TraceOutput, trace: Trace | None) -> None:
        """Send ``trace`` soon. All scopes go to the same place, so that no end of one needs to be known."""
        if trace is not None and self._thread.has_room(self._max_traces):
            self._thread.items.put(trace)

    def close(self, timeout_s: float) -> None:
        """Send the queued spans, for ``timeout_s`` seconds at most. No other method may be called after it."""
        if not self._thread.close(timeout_s):
            logger.warning("the last traces could not be sent to %s in %g s", self._settings.url, timeout_s)

    # In the thread

    def _run(self) -> None:
        try:
            self._send_all()
        except Exception:
            logger.exception("traces are no longer sent to %s", self._settings.url)

    def _send_all(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from naiad.telemetry.tracing.spans import SpanMaker

        # The library logs every failed attempt; here a failure is logged once.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        exporter = OTLPSpanExporter(endpoint=self._settings.url)
        maker = SpanMaker(self._settings.resource or {})
        is_over = False
        while not is_over:
            traces, is_over = self._collect()
            # For each batch anew: the wall clock may be set while the server runs.
            offset_ns = time_ns() - monotonic_ns()
            spans = [span for trace in traces for span in maker.spans(trace, offset_ns)]
            size = self._settings.max_batch
            for begin in range(0, len(spans), size):
                self._send(exporter, spans[begin : begin + size])
            self._thread.log_dropped()
        exporter.shutdown()

    def _collect(self) -> tuple[list[Trace], bool]:
        """The traces to be sent next, and whether they are the last."""
        first = self._thread.items.get()
        if first is None:
            return [], True
        traces = [first]
        deadline = monotonic() + self._settings.delay_s
        while (len(traces) + 1) * SPANS <= self._settings.max_batch:
            try:
                trace = self._thread.items.get(timeout=max(0.0, deadline - monotonic()))
            except Empty:
                return traces, False
            if trace is None:
                return traces, True
            traces.append(trace)
        return traces, False

    def _send(self, exporter: Any, spans: list[ReadableSpan]) -> None:
        """A failing collector is logged once, until it accepts spans again."""
        try:
            is_sent = exporter.export(spans).name == "SUCCESS"
            reason = "it did not take them"
        except Exception as error:
            is_sent, reason = False, first_line(error)
        if not is_sent and not self._has_failed:
            logger.error("traces cannot be sent to %s: %s", self._settings.url, reason)
        self._has_failed = not is_sent
