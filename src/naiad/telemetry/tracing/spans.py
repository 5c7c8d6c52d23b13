"""From a trace to spans of OpenTelemetry. Imported in a process that sends them only: it needs ``opentelemetry``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from naiad.telemetry.tracing.trace import Trace, in_utf8
from naiad.telemetry.tracing.w3c import TraceParent
from naiad.version import __version__

ROOT: Final = "InferRequest"
COMPUTE: Final = "compute"
_OF_THE_REQUEST: Final = ("HTTP_", "GRPC_", "INFER_RESPONSE_")

Times = list[tuple[str, int]]


class SpanMaker:
    """Makes the spans of traces.

    Args:
        resource: the attributes of the server in all spans.
    """

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resource = Resource(dict(resource))
        self._scope = InstrumentationScope("naiad", __version__)
        self._ids = RandomIdGenerator()

    def spans(self, trace: Trace, offset_ns: int, within_span: SpanContext | None = None) -> Iterator[ReadableSpan]:
        """The spans of a trace, the outermost first; ``offset_ns`` turns monotonic times into ns since 1970.

        ``within_span`` is the span of the ensemble that the trace is a step of, or of the model that made the call;
        None for a trace of its own.
        """
        model_name = in_utf8(trace.model)
        stages = _Stages([(name, ns + offset_ns) for name, ns in trace.timestamps], within_span is not None)
        parent = within_span or _context_of(trace.parent)
        chosen = trace.trace_id or self._ids.generate_trace_id()
        trace_id = chosen if parent is None else parent.trace_id
        attributes: dict[str, str | int] = {
            "triton.model_name": model_name,
            "triton.model_version": trace.version,
            "triton.trace_id": trace.id,
            "triton.trace_parent_id": trace.parent_id,
        }
        if trace.request_id:
            attributes["triton.request_id"] = in_utf8(trace.request_id)
        status = Status(StatusCode.ERROR, in_utf8(trace.error)) if trace.error else Status()
        for name, events, within, known in (
            (ROOT, stages.request, stages.all, None),
            (model_name, stages.model, stages.model, attributes),
            (COMPUTE, stages.compute, stages.compute, None),
        ):
            if events:
                # The model may have passed the span of its run on to others.
                span_id = trace.span_id if name is COMPUTE and trace.span_id else self._ids.generate_span_id()
                parent, span = self._span(name, trace_id, span_id, parent, events, within, status, known)
                yield span
        for name, events in stages.named.items():
            yield self._span(name, trace_id, self._ids.generate_span_id(), parent, events, events, Status(), None)[1]
        for child in trace.children:
            yield from self.spans(child, offset_ns, parent)

    def _span(
        self,
        name: str,
        trace_id: int,
        span_id: int,
        parent: SpanContext | None,
        events: Times,
        within: Times,
        status: Status,
        attributes: Mapping[str, str | int] | None,
    ) -> tuple[SpanContext, ReadableSpan]:
        state = parent.trace_state if parent is not None else None
        context = SpanContext(trace_id, span_id, False, TraceFlags(TraceFlags.SAMPLED), state)
        return context, ReadableSpan(
            name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes or {},
            events=[Event(stage, timestamp=ns) for stage, ns in events],
            kind=SpanKind.SERVER,
            status=status,
            start_time=min(ns for _, ns in within),
            end_time=max(ns for _, ns in within),
            instrumentation_scope=self._scope,
        )


class _Stages:
    """The timestamps of a trace, by the span that they belong to.

    Attributes:
        named: the spans that the model itself named, by ``X_START`` and ``X_END``.
    """

    def __init__(self, times: Times, is_within: bool) -> None:
        self.all = times
        self.named = _named(times)
        in_named = {stage for events in self.named.values() for stage in events}
        compute: Times = []
        self.model: Times = []
        self.request: Times = []
        for stage in times:
            name = stage[0]
            if stage in in_named:
                continue
            if name.startswith(("REQUEST_", "QUEUE_")):
                self.model.append(stage)
            elif name.startswith(_OF_THE_REQUEST):
                # A step of an ensemble did not arrive as a request: it has no span around that of its model.
                if not is_within:
                    self.request.append(stage)
            else:
                compute.append(stage)
        self.compute = compute


def _named(times: Times) -> dict[str, Times]:
    found: dict[str, Times] = {}
    for name, ns in times:
        known = name.startswith((*_OF_THE_REQUEST, "REQUEST_", "QUEUE_", "COMPUTE_"))
        if name.endswith("_START") and not known:
            end = next((t for t in times if t[0] == name.removesuffix("_START") + "_END" and t[1] >= ns), None)
            if end is not None:
                found[name.removesuffix("_START")] = [(name, ns), end]
    return found


def _context_of(parent: TraceParent | None) -> SpanContext | None:
    if parent is None:
        return None
    state = TraceState.from_header([parent.state]) if parent.state else None
    return SpanContext(parent.trace_id, parent.span_id, True, TraceFlags(parent.flags), state)
