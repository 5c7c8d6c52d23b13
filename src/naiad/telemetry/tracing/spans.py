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

        ``within_span`` is the span of the ensemble that the trace is a step of; None for a trace of its own.
        """
        model_name = in_utf8(trace.model)
        times = [(name, ns + offset_ns) for name, ns in trace.timestamps]
        parent = within_span or _context_of(trace.parent)
        trace_id = self._ids.generate_trace_id() if parent is None else parent.trace_id
        model = [t for t in times if t[0].startswith(("REQUEST_", "QUEUE_"))]
        compute = [t for t in times if t[0].startswith("COMPUTE_")]
        rest = [t for t in times if t not in model and t not in compute]
        if within_span is not None:
            # A step of an ensemble did not arrive as a request: it has no span of one around that of its model.
            model, rest = [t for t in times if t not in compute], []
        attributes: dict[str, str | int] = {
            "triton.model_name": model_name,
            "triton.model_version": trace.version,
            "triton.trace_id": trace.id,
            "triton.trace_parent_id": trace.parent_id,
        }
        if trace.request_id:
            attributes["triton.request_id"] = in_utf8(trace.request_id)
        status = Status(StatusCode.ERROR, in_utf8(trace.error)) if trace.error else Status()
        state = parent.trace_state if parent is not None else None
        for name, events, within, known in (
            (ROOT, rest, times, None),
            (model_name, model, model, attributes),
            (COMPUTE, compute, compute, None),
        ):
            if not events:
                continue
            flags = TraceFlags(TraceFlags.SAMPLED)
            context = SpanContext(trace_id, self._ids.generate_span_id(), False, flags, state)
            yield ReadableSpan(
                name,
                context=context,
                parent=parent,
                resource=self._resource,
                attributes=known or {},
                events=[Event(stage, timestamp=ns) for stage, ns in events],
                kind=SpanKind.SERVER,
                status=status,
                start_time=min(ns for _, ns in within),
                end_time=max(ns for _, ns in within),
                instrumentation_scope=self._scope,
            )
            parent = context
            if known is not None:
                for child in trace.children:
                    yield from self.spans(child, offset_ns, context)


def _context_of(parent: TraceParent | None) -> SpanContext | None:
    if parent is None:
        return None
    state = TraceState.from_header([parent.state]) if parent.state else None
    return SpanContext(parent.trace_id, parent.span_id, True, TraceFlags(parent.flags), state)
