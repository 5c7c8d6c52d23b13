"""Tracing the requests of one model version: from the times that its batches carry anyway to a trace's timestamps."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import getrandbits
from time import monotonic_ns, time

from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.model.request_trace import MAX_ERROR, MAX_ID, OpenTrace
from naiad.request import Array, InferRequest, TracedOptions
from naiad.telemetry.metrics.latencies import Latencies
from naiad.telemetry.metrics.recent_latencies import RecentLatencies
from naiad.telemetry.tracing.settings_store import Sampler
from naiad.telemetry.tracing.tensors import BACKEND_OUTPUT, MAX_BYTES, QUEUE_INPUT, TracedTensor, traced_tensors
from naiad.telemetry.tracing.trace import Trace
from naiad.telemetry.tracing.w3c import TraceParent, read_parent

logger = logging.getLogger("naiad")


class ModelTracer:
    """Traces the requests of a model version that ``sampler`` chooses, after their responses.

    Args:
        chooses_early: requests are chosen before they are queued (``begin``), as their model adds to the traces.
        latencies: gets the traced requests as exemplars; None for no distributions.
    """

    __slots__ = ("_chooses_early", "_is_uniform", "_latencies", "_model", "_spec", "_version", "sampler")

    def __init__(
        self,
        sampler: Sampler,
        spec: ModelSpec,
        version: int,
        chooses_early: bool = False,
        latencies: Latencies | RecentLatencies | None = None,
    ) -> None:
        self.sampler = sampler
        self._latencies = latencies
        self._chooses_early = chooses_early
        self._is_uniform = not chooses_early and spec.sequence is None
        self._model = spec.name
        self._spec = spec
        self._version = version

    def begin(self, request: InferRequest) -> None:
        """Choose whether a request that is about to be queued is traced."""
        number, parent = self._chosen(request)
        if number:
            request.options = TracedOptions(request.options, OpenTrace(self.sampler, number, parent))

    def trace(
        self,
        requests: Sequence[InferRequest],
        batch: Batch,
        responded_ns: int,
        outputs: Sequence[Mapping[str, Array] | None] | None = None,
        error: NaiadError | None = None,
        has_run: bool = True,
    ) -> None:
        """Trace ``requests`` of ``batch`` that have got their responses, except requests that other models sent.

        Args:
            responded_ns: when the responses began, a monotonic time.
            outputs: of each request; None for the rows of the batch's results.
            error: the error that all of them failed with.
            has_run: whether the model came to its end nevertheless.
        """
        sampler = self.sampler
        # Most batches have no traced request, so that is found out for all of their requests at once. Requests of
        # sequences have another origin, and those of other models are not counted.
        if self._is_uniform and sampler.passes_over_all(len([True for r in requests if r.carrier])):
            return
        sent_ns = monotonic_ns()
        has_run = has_run and batch.error is None
        failure = "" if error is None else str(error)[:MAX_ERROR]
        is_quick = self._is_uniform and not sampler.takes_parents
        for index, one in enumerate(requests):
            # Most of them are not traced, and what is below takes longer than all else that is done for a request.
            if is_quick and (not one.carrier or sampler.passes_over()):
                continue
            request = one.origin
            begun = _begun(request) if self._chooses_early else None
            if begun is not None:
                number, parent = begun.number, begun.parent
            elif self._chooses_early:
                continue
            else:
                number, parent = self._chosen(request)
            if not number:
                continue
            given = None if outputs is None else outputs[index] or {}
            try:
                times = _timestamps(request, batch, responded_ns, sent_ns, has_run)
                if begun is not None:
                    times = iter(begun.with_activities(times))
                timestamps = tuple(times) if sampler.timestamps else ()
                tensors: tuple[TracedTensor, ...] = ()
                if sampler.tensors:
                    tensors = self._tensors(request, _own_rows(batch, requests, index) if given is None else given)
            except Exception:
                # The responses have been sent, and no request may fail because of a trace.
                logger.exception("a trace of model '%s' could not be made", self._model)
                timestamps, tensors = (), ()
            request_id = request.id[:MAX_ID]
            trace = Trace(number, self._model, self._version, request_id, timestamps, tensors, parent, failure)
            if begun is not None:
                children = tuple(begun.children)
                trace = replace(trace, children=children, trace_id=begun.trace_id, span_id=begun.span_id)
            elif sampler.takes_parents:
                trace = replace(trace, trace_id=parent.trace_id if parent is not None else getrandbits(128) or 1)
            if trace.trace_id and self._latencies is not None:
                self._note_exemplar(self._latencies, trace.trace_id, request, batch, responded_ns, has_run)
            sampler.put(trace)

    @staticmethod
    def _note_exemplar(
        latencies: Latencies | RecentLatencies,
        trace_id: int,
        request: InferRequest,
        batch: Batch,
        responded_ns: int,
        has_run: bool,
    ) -> None:
        begun_ns = batch.start_ns - batch.gather_ns
        run = batch.input_ns - begun_ns, batch.infer_ns - batch.input_ns, batch.end_ns - batch.infer_ns
        is_whole = has_run and batch.infer_ns and batch.end_ns
        latencies.exemplar(
            f"{trace_id:032x}",
            time(),
            responded_ns - request.received_ns,
            begun_ns - request.queued_ns,
            run if is_whole else (),
        )

    def trace_cached(self, request: InferRequest, outputs: Mapping[str, Array]) -> None:
        """Trace a request that the response cache responded to, without a stage of the model."""
        number, parent = self._chosen(request)
        if not number:
            return
        try:
            times = (*arrival(request), *departure(request, monotonic_ns()))
            timestamps = times if self.sampler.timestamps else ()
            tensors = self._tensors(request, outputs) if self.sampler.tensors else ()
        except Exception:
            logger.exception("a trace of model '%s' could not be made", self._model)
            timestamps, tensors = (), ()
        self.sampler.put(
            Trace(number, self._model, self._version, request.id[:MAX_ID], timestamps, tensors, parent, "")
        )

    def _chosen(self, request: InferRequest) -> tuple[int, TraceParent | None]:
        """The id of a request's trace, 0 when it is not traced, and the trace of its caller."""
        if not request.carrier:
            # A request of another model: its ensemble traces it as a step, or nothing does.
            return 0, None
        sampler = self.sampler
        parent = read_parent(request.headers()) if sampler.takes_parents else None
        # A caller that traces has chosen the request already; rate and count choose among the others.
        return sampler.take() if parent is None else sampler.take_in(), parent

    def _tensors(self, request: InferRequest, outputs: Mapping[str, Array]) -> tuple[TracedTensor, ...]:
        spec = self._spec
        inputs = ((name, tensor.dtype) for name, tensor in spec.inputs.items())
        found = traced_tensors(QUEUE_INPUT, request.inputs, inputs, MAX_BYTES)
        wanted = ((name, spec.outputs[name].dtype) for name in request.options.outputs)
        room = MAX_BYTES - sum(t.nbytes for t in found)
        return (*found, *traced_tensors(BACKEND_OUTPUT, outputs, wanted, room))


def note_response(request: InferRequest) -> None:
    """Note a response that is not the last, if the request is traced from its beginning."""
    begun = _begun(request)
    if begun is not None:
        begun.add_activity("INFER_RESPONSE_COMPLETE", monotonic_ns())


def _begun(request: InferRequest) -> OpenTrace | None:
    options = request.options
    trace = options.trace if type(options) is TracedOptions else None
    # A call carries the trace of its caller, who ends it.
    return trace if isinstance(trace, OpenTrace) and not trace.is_call else None


def batch_rows(batch: Batch) -> Iterator[Mapping[str, Array]]:
    """The outputs of each request of a batch."""
    row = 0
    for index, request in enumerate(batch.requests):
        begin, row = row, row + request.options.rows
        yield _rows(batch, index, begin, row)


def _own_rows(batch: Batch, requests: Sequence[InferRequest], index: int) -> Mapping[str, Array]:
    """The outputs of one of the requests that the rows of a batch belong to."""
    begin = sum(request.origin.options.rows for request in requests[:index])
    return _rows(batch, index, begin, begin + requests[index].origin.options.rows)


def _rows(batch: Batch, index: int, begin: int, end: int) -> Mapping[str, Array]:
    """The outputs of one request of a batch."""
    if batch.error is not None:
        return {}
    # The results of a single request are passed on whole, also where they are no rows.
    if len(batch.requests) == 1:
        return batch.results
    if batch.parts:
        return batch.parts[index]
    return {name: array[begin:end] for name, array in batch.results.items()}


def arrival(request: InferRequest) -> Iterator[tuple[str, int]]:
    """The timestamps of a request until it is queued."""
    # The reference times the receiving as well. Here a request has one time for it, and nothing on its way pays for
    # traces.
    received = "WAITREAD" if request.carrier == "GRPC" else "RECV"
    yield f"{request.carrier}_{received}_START", request.received_ns
    yield f"{request.carrier}_{received}_END", request.received_ns
    yield "REQUEST_START", request.queued_ns
    yield "QUEUE_START", request.queued_ns


def departure(request: InferRequest, responded_ns: int) -> Iterator[tuple[str, int]]:
    """The timestamps of a response that no model ran for."""
    yield "INFER_RESPONSE_COMPLETE", responded_ns
    yield "REQUEST_END", responded_ns
    yield f"{request.carrier}_SEND_START", responded_ns
    yield f"{request.carrier}_SEND_END", responded_ns


def _timestamps(
    request: InferRequest, batch: Batch, responded_ns: int, sent_ns: int, has_run: bool
) -> Iterator[tuple[str, int]]:
    """The timestamps of a batch, under the reference's names; none for a stage that the request did not reach."""
    yield from arrival(request)
    yield "COMPUTE_START", batch.start_ns - batch.gather_ns
    yield "COMPUTE_INPUT_END", batch.input_ns
    if has_run:
        # In a worker some requests of a batch get their responses before it is done.
        yield "COMPUTE_OUTPUT_START", batch.infer_ns or responded_ns
        yield "COMPUTE_END", batch.end_ns or responded_ns
        yield "INFER_RESPONSE_COMPLETE", responded_ns
    yield "REQUEST_END", responded_ns
    yield f"{request.carrier}_SEND_START", responded_ns
    yield f"{request.carrier}_SEND_END", sent_ns
