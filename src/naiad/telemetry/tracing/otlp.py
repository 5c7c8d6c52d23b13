"""Traces as spans of OpenTelemetry, sent to a collector over OTLP by a thread: the loop never waits for it.

Source of the spans, their names and attributes: ``tracer.cc`` of the reference. ``InferRequest`` is the request from
its arrival to its response, the span with the name of the model is its time in the model, ``compute`` is its run.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from queue import Empty
from time import monotonic, monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import OptionError, first_line
from naiad.extras import how_to_install
from naiad.options.trace_config import (
    BATCHING,
    GRPC,
    HTTP_PROTOBUF,
    OPENTELEMETRY,
    TraceSetting,
    batching_number,
    span_protocol,
)
from naiad.telemetry.tracing.trace import Trace, TraceOutput
from naiad.telemetry.tracing.writer_thread import TraceThread

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

logger = logging.getLogger("naiad")

DEFAULT_URL: Final = "http://localhost:4318/v1/traces"
DEFAULT_URLS: Final = {HTTP_PROTOBUF: DEFAULT_URL, GRPC: "http://localhost:4317"}
_EXPORTERS: Final = {
    HTTP_PROTOBUF: ("opentelemetry.exporter.otlp.proto.http.trace_exporter", how_to_install("otel")),
    GRPC: ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", how_to_install("otel-grpc")),
}
"""By protocol, the module with the exporter, and how to install it."""
_PROTOCOL_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
DEFAULT_RESOURCE: Final = {"service.name": "triton-inference-server"}
_GATHER_S: Final = 0.05
_RETRIES: Final = re.compile(r",? retrying in [\d.]+s")
SPANS: Final = 3
"""Spans of one trace."""


@dataclass(frozen=True, slots=True)
class SpanSettings:
    """The settings of the exporter.

    Attributes:
        url: the address of the collector; over gRPC only its host and port count, and whether it is encrypted (https).
        protocol: one of ``PROTOCOLS``.
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
    protocol: str = HTTP_PROTOBUF


def span_settings(given: Iterable[TraceSetting], environment: Mapping[str, str]) -> SpanSettings:
    """The settings of ``--trace-config opentelemetry,...``, completed by the variables ``OTEL_BSP_...`` and those of
    the protocol.

    Raises:
        OptionError: such a variable has a value that the setting does not accept.
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
    protocol = str(values.get("protocol") or _protocol_of(environment))
    return SpanSettings(
        values.get("url", DEFAULT_URLS[protocol]),
        resource,
        numbers["bsp_max_queue_size"],
        numbers["bsp_schedule_delay"] / 1000,
        numbers["bsp_max_export_batch_size"],
        protocol,
    )


def _protocol_of(environment: Mapping[str, str]) -> str:
    for name in _PROTOCOL_VARIABLES:
        try:
            if text := environment.get(name, ""):
                return span_protocol(text)
        except ValueError as error:
            raise OptionError(f"environment variable {name}: {error}") from None
    return HTTP_PROTOBUF


def _from(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    try:
        return batching_number(text) if text else default
    except ValueError as error:
        raise OptionError(f"environment variable {name}: {error}") from None


class _Reasons(logging.Handler):
    """Keeps what the library logs first while it exports: later lines say that it gave up, and not why.

    Attributes:
        first: the line; "" when there is none since it was set to that.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or _RETRIES.sub("", record.getMessage().partition("\n")[0]).rstrip(".")


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
        self._reasons = _Reasons()

    def problem(self) -> str:
        """The missing package, with how to install it; "" when nothing is missing."""
        exporter, how = _EXPORTERS[self._settings.protocol]
        try:
            # Here, when the server starts, and not with the first trace: it takes long.
            for module in ("naiad.telemetry.tracing.spans", exporter):
                import_module(module)
        except ImportError as error:
            over_grpc = " with opentelemetry,protocol=grpc" if self._settings.protocol == GRPC else ""
            return (
                f"mode=opentelemetry{over_grpc} needs OpenTelemetry's SDK and its OTLP exporter, which cannot be "
                f"imported ({first_line(error)}); run: {how}"
            )
        return ""

    def shown(self) -> dict[str, str]:
        """The settings as the protocol shows them."""
        settings = self._settings
        # The reference has no such setting: where it has the reference's value, nothing is added.
        protocol = {} if settings.protocol == HTTP_PROTOBUF else {"protocol": settings.protocol}
        return {
            "url": settings.url,
            **protocol,
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
        # The library logs every failed attempt; here a failure is logged once.
        library = logging.getLogger("opentelemetry.exporter")
        propagates, library.propagate = library.propagate, False
        library.addHandler(self._reasons)
        try:
            self._send_all()
        except Exception:
            logger.exception("traces are no longer sent to %s", self._settings.url)
        finally:
            library.removeHandler(self._reasons)
            library.propagate = propagates

    def _send_all(self) -> None:
        from naiad.telemetry.tracing.spans import SpanMaker

        exporter = self._exporter()
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

    def _exporter(self) -> Any:
        # Both classes have one name and one interface. That of gRPC encrypts unless the scheme is http.
        made: Any = import_module(_EXPORTERS[self._settings.protocol][0])
        return made.OTLPSpanExporter(endpoint=self._settings.url)

    def _collect(self) -> tuple[list[Trace], bool]:
        """The traces to be sent next, and whether they are the last."""
        first = self._thread.items.get()
        if first is None:
            return [], True
        traces = [first]
        deadline = monotonic() + self._settings.delay_s
        while (len(traces) + 1) * SPANS <= self._settings.max_batch:
            if self._thread.items.empty():
                # The thread would wake for each trace, and stop the event loop as often.
                self._thread.gather(min(_GATHER_S, max(0.0, deadline - monotonic())))
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
        self._reasons.first = ""
        try:
            is_sent = exporter.export(spans).name == "SUCCESS"
            reason = self._reasons.first or "it did not take them"
        except Exception as error:
            is_sent, reason = False, first_line(error)
        if not is_sent and not self._has_failed:
            logger.error("traces cannot be sent to %s: %s", self._settings.url, reason)
        self._has_failed = not is_sent
