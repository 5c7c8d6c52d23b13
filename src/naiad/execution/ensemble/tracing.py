"""Traces of ensembles: the trace of a request has the traces of its steps as children, as in the reference server."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from naiad.errors import NaiadError
from naiad.execution.model.request_trace import MAX_ERROR, MAX_ID, call_trace, step_times
from naiad.execution.model.tracing import arrival, departure
from naiad.request import Array, BatchTimes, InferRequest
from naiad.telemetry.tracing.settings_store import Sampler
from naiad.telemetry.tracing.tensors import BACKEND_OUTPUT, MAX_BYTES, QUEUE_INPUT, TracedTensor, traced_tensors
from naiad.telemetry.tracing.trace import Trace
from naiad.telemetry.tracing.w3c import TraceParent, read_parent

if TYPE_CHECKING:
    from naiad.config.spec import ModelSpec
    from naiad.request import BatchTimes

MAX_CHILDREN: Final = 256
"""The most steps in the trace of one request; a decoupled model may start any number of them."""

Timestamps = tuple[tuple[str, int], ...]


class StepTrace:
    """The trace of one step while it runs.

    Attributes:
        run: the trace of the request that it belongs to.
        number: its id.
        children: the traces of its own steps, for a member that is an ensemble.
    """

    __slots__ = ("children", "number", "run")

    def __init__(self, run: RunTrace, number: int) -> None:
        self.run = run
        self.number = number
        self.children: tuple[Trace, ...] = ()


class RunTrace:
    """The trace of one request of an ensemble, from its beginning.

    Args:
        sampler: the sampler that chose it, which takes it at the end.
        number: its id.
        parent: the caller's own trace, if it has one.
    """

    __slots__ = ("_children", "_number", "_parent", "_sampler", "_spec", "_version")

    def __init__(
        self, sampler: Sampler, number: int, spec: ModelSpec, version: int, parent: TraceParent | None = None
    ) -> None:
        self._sampler = sampler
        self._number = number
        self._parent = parent
        self._spec = spec
        self._version = version
        self._children: list[Trace] = []

    @classmethod
    def begin(cls, sampler: Sampler | None, request: InferRequest, spec: ModelSpec, version: int) -> RunTrace | None:
        """Begin the trace of a request; None when it is not traced.

        A step belongs to the trace of its ensemble, a call to the trace of the request that a model makes it for.
        """
        # Only a ``MemberRequest`` has the attribute.
        step: StepTrace | None = getattr(request, "trace", None)
        if step is not None:
            # A member that is an ensemble continues the outer trace, whatever its own settings are.
            return cls(step.run._sampler, step.number, spec, version)
        call = call_trace(request)
        if call is not None:
            return cls(call.sampler, call.number, spec, version)
        if sampler is None or not request.carrier:
            return None
        parent = read_parent(request.headers()) if sampler.takes_parents else None
        number = sampler.take() if parent is None else sampler.take_in()
        return cls(sampler, number, spec, version, parent) if number else None

    def step(self) -> StepTrace | None:
        """Begin the trace of a step; None beyond ``MAX_CHILDREN``."""
        if len(self._children) >= MAX_CHILDREN:
            return None
        # Not counted: rate and count choose among the requests of callers, and steps follow these.
        return StepTrace(self, self._sampler.take_in())

    def step_ended(
        self,
        request: InferRequest,
        version: int,
        trace: StepTrace,
        batch: BatchTimes | None,
        outputs: Mapping[str, Array] | None,
        error: NaiadError | None,
        spec: ModelSpec,
    ) -> None:
        """Add the trace of a step that has responded."""
        times = tuple(step_times(request, batch, monotonic_ns(), error is None)) if self._sampler.timestamps else ()
        self._children.append(
            Trace(
                trace.number,
                spec.name,
                version,
                request.id[:MAX_ID],
                times,
                self._tensors(request, outputs, spec),
                error="" if error is None else str(error)[:MAX_ERROR],
                parent_id=self._number,
                children=trace.children,
            )
        )

    def end(self, request: InferRequest, outputs: Mapping[str, Array] | None, error: NaiadError | None) -> None:
        """End the trace, with the response to the request."""
        step: StepTrace | None = getattr(request, "trace", None)
        if step is not None:
            # Not written here: it is part of the outer trace.
            step.children = tuple(self._children)
            return
        call = call_trace(request)
        if call is not None:
            # As above; the call ends after its run.
            call.children.extend(self._children)
            return
        sampler, now_ns = self._sampler, monotonic_ns()
        times = (*arrival(request), *departure(request, now_ns)) if sampler.timestamps else ()
        tensors = self._tensors(request, outputs, self._spec)
        failure = "" if error is None else str(error)[:MAX_ERROR]
        sampler.put(
            Trace(
                self._number, self._spec.name, self._version, request.id[:MAX_ID], times, tensors, self._parent,
                failure, children=tuple(self._children),
            )
        )  # fmt: skip

    def _tensors(
        self, request: InferRequest, outputs: Mapping[str, Array] | None, spec: ModelSpec
    ) -> tuple[TracedTensor, ...]:
        if not self._sampler.tensors:
            return ()
        inputs = ((name, tensor.dtype) for name, tensor in spec.inputs.items())
        found = traced_tensors(QUEUE_INPUT, request.inputs, inputs, MAX_BYTES)
        wanted = ((name, spec.outputs[name].dtype) for name in request.options.outputs)
        # One bound for inputs and outputs together.
        room = MAX_BYTES - sum(t.nbytes for t in found)
        return (*found, *traced_tensors(BACKEND_OUTPUT, outputs or {}, wanted, room))
