"""Traces of requests that are traced from their beginning: those of Python models, which can add to the trace, and of
decoupled models, whose responses are part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from random import getrandbits
from time import monotonic_ns
from typing import Final

import orjson

from naiad.errors import NaiadError
from naiad.request import BatchTimes, InferRequest, RequestTrace, TracedOptions
from naiad.telemetry.tracing.settings_store import Sampler
from naiad.telemetry.tracing.trace import Trace
from naiad.telemetry.tracing.w3c import TraceParent, context_text

MAX_ID: Final = 1024
"""Characters of a request's id that its trace has, so that traces that wait for the disk take little memory."""

MAX_ERROR: Final = 1024
"""Characters of an error that a trace has."""

MAX_CALLS: Final = 256
"""The most calls of other models in the trace of one request."""
MAX_ACTIVITIES: Final = 256
"""The most points of time that a model adds to a trace, and the most responses that it shows."""
MAX_NAME: Final = 256
"""Characters of the name of an activity."""


class OpenTrace:
    """The trace of one request while it is open; a ``RequestTrace``.

    Attributes:
        sampler: the sampler that chose it, which numbers the traces within it as well.
        number: its id.
        parent: the caller's own trace, if it has one.
        trace_id, span_id: of the span of the model's run, for OpenTelemetry; 0 for files.
        context: for the model to pass on, as JSON; "" for files.
        activities: what the model added, and the responses before the last one.
        children: the traces of the calls that the model made.
    """

    __slots__ = ("_caller", "activities", "children", "context", "number", "parent", "sampler", "span_id", "trace_id")

    def __init__(
        self, sampler: Sampler, number: int, parent: TraceParent | None, caller: OpenTrace | None = None
    ) -> None:
        """``caller``: the trace of the request that a model makes this call for."""
        self.sampler = sampler
        self._caller = caller
        self.number = number
        self.parent = parent
        self.activities: list[tuple[str, int]] = []
        self.children: list[Trace] = []
        self.trace_id = self.span_id = 0
        self.context = ""
        # Only a collector takes part in the traces of others; files have numbers of their own.
        if sampler.takes_parents:
            continued = caller or parent
            self.trace_id = getrandbits(128) or 1 if continued is None else continued.trace_id
            self.span_id = getrandbits(64) or 1
            state = "" if parent is None else parent.state
            self.context = orjson.dumps(context_text(self.trace_id, self.span_id, state)).decode()

    @property
    def is_call(self) -> bool:
        """Whether it is the trace of a call, and part of its caller's."""
        return self._caller is not None

    def add_activity(self, name: str, at_ns: int) -> None:
        if len(self.activities) < MAX_ACTIVITIES:
            self.activities.append((name[:MAX_NAME], at_ns))

    def begin_call(self) -> RequestTrace | None:
        if len(self.children) >= MAX_CALLS:
            return None
        # Not counted: rate and count choose among the requests of callers.
        return OpenTrace(self.sampler, self.sampler.take_in(), None, self)

    def end_call(
        self, request: InferRequest, model: str, version: int, batch: BatchTimes | None, error: NaiadError | None
    ) -> None:
        caller = self._caller
        if caller is None:
            return
        times = step_times(request, batch, monotonic_ns(), error is None) if self.sampler.timestamps else ()
        caller.children.append(
            Trace(
                self.number,
                model,
                version,
                request.id[:MAX_ID],
                self.with_activities(times),
                error="" if error is None else str(error)[:MAX_ERROR],
                parent_id=caller.number,
                children=tuple(self.children),
                trace_id=self.trace_id,
                span_id=self.span_id,
            )
        )

    def with_activities(self, times: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        """Timestamps and activities in their order."""
        return tuple(sorted((*times, *self.activities), key=itemgetter(1)))


def call_trace(request: InferRequest) -> OpenTrace | None:
    """The trace of a call that a model makes for a traced request; None for every other request."""
    options = request.options
    trace = options.trace if type(options) is TracedOptions else None
    return trace if isinstance(trace, OpenTrace) and trace.is_call else None


def step_times(
    request: InferRequest, batch: BatchTimes | None, now_ns: int, has_run: bool
) -> Iterator[tuple[str, int]]:
    """The timestamps of a request that another model sent, and that has its response now."""
    yield "REQUEST_START", request.received_ns
    yield "QUEUE_START", request.queued_ns
    # Without these times it failed in its queue, or ran without a batch.
    if batch is not None and batch.start_ns:
        yield "COMPUTE_START", batch.start_ns - batch.gather_ns
        yield "COMPUTE_INPUT_END", batch.input_ns
        if has_run:
            yield "COMPUTE_OUTPUT_START", batch.infer_ns or now_ns
            yield "COMPUTE_END", batch.end_ns or now_ns
    yield "INFER_RESPONSE_COMPLETE", now_ns
    yield "REQUEST_END", now_ns
