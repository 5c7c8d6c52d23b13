"""Tracing the requests of one model version: from the times that its batches carry anyway to a trace's timestamps."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic_ns
from typing import Final

from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError
from naiad.execution.batching.batch import Batch
from naiad.request import Array, InferRequest
from naiad.telemetry.tracing.settings_store import Sampler
from naiad.telemetry.tracing.tensors import BACKEND_OUTPUT, MAX_BYTES, QUEUE_INPUT, TracedTensor, traced_tensors
from naiad.telemetry.tracing.trace import Trace
from naiad.telemetry.tracing.w3c import TraceParent, read_parent

logger = logging.getLogger("naiad")

MAX_ID: Final = 1024
"""Characters of a request's id that its trace has, so that traces that wait for the disk take little memory."""

MAX_ERROR: Final = 1024
"""Characters of an error that a trace has."""


class ModelTracer:
    """Traces those requests of a model version that ``sampler`` chooses; shown each request once it is answered."""

    __slots__ = ("_model", "_spec", "_version", "sampler")

    def __init__(self, sampler: Sampler, spec: ModelSpec, version: int) -> None:
        self.sampler = sampler
        self._model = spec.name
        self._spec = spec
        self._version = version

    def trace(
        self,
        requests: Sequence[InferRequest],
        batch: Batch,
        answered_ns: int,
        outputs: Sequence[Mapping[str, Array] | None] | None = None,
        error: NaiadError | None = None,
        has_run: bool = True,
    ) -> None:
        """``requests`` of ``batch`` are answered; that began at ``answered_ns``.

        Those that other models sent are left out. ``outputs`` are those of each request; None: they are the rows of
        the batch's results. ``error`` is what all of them failed with, and ``has_run``
        says whether the model came to its end nevertheless.
        """
        sent_ns = monotonic_ns()
        sampler = self.sampler
        has_run = has_run and batch.error is None
        failure = "" if error is None else str(error)[:MAX_ERROR]
        row = 0
        for index, one in enumerate(requests):
            request = one.origin
            begin, row = row, row + request.options.rows
            number, parent = self._chosen(request)
            if not number:
                continue
            given = None if outputs is None else outputs[index] or {}
            try:
                times = _timestamps(request, batch, answered_ns, sent_ns, has_run)
                timestamps = tuple(times) if sampler.timestamps else ()
                tensors = self._tensors(request, _rows(batch, index, begin, row) if given is None else given)
            except Exception:
                # The answers are out, and nothing of them may depend on a trace.
                logger.exception("a trace of model '%s' could not be made", self._model)
                timestamps, tensors = (), ()
            request_id = request.id[:MAX_ID]
            sampler.put(Trace(number, self._model, self._version, request_id, timestamps, tensors, parent, failure))

    def trace_kept(self, request: InferRequest, outputs: Mapping[str, Array]) -> None:
        """``request`` was answered from the response cache, and has come to no stage of the model."""
        number, parent = self._chosen(request)
        if not number:
            return
        try:
            times = (*arrival(request), *departure(request, monotonic_ns()))
            timestamps = times if self.sampler.timestamps else ()
            tensors = self._tensors(request, outputs)
        except Exception:
            logger.exception("a trace of model '%s' could not be made", self._model)
            timestamps, tensors = (), ()
        self.sampler.put(
            Trace(number, self._model, self._version, request.id[:MAX_ID], timestamps, tensors, parent, "")
        )

    def _chosen(self, request: InferRequest) -> tuple[int, TraceParent | None]:
        """The id of a request's trace, 0 when it is not traced, and the trace of its caller."""
        if not request.carrier:
            return 0, None
        sampler = self.sampler
        parent = read_parent(request.headers()) if sampler.takes_parents else None
        return sampler.take() if parent is None else sampler.take_in(), parent

    def _tensors(self, request: InferRequest, outputs: Mapping[str, Array]) -> tuple[TracedTensor, ...]:
        if not self.sampler.tensors:
            return ()
        spec = self._spec
        inputs = ((name, tensor.dtype) for name, tensor in spec.inputs.items())
        found = traced_tensors(QUEUE_INPUT, request.inputs, inputs, MAX_BYTES)
        wanted = ((name, spec.outputs[name].dtype) for name in request.options.outputs)
        room = MAX_BYTES - sum(t.nbytes for t in found)
        return (*found, *traced_tensors(BACKEND_OUTPUT, outputs, wanted, room))


def batch_rows(batch: Batch) -> Iterator[Mapping[str, Array]]:
    """What each request of a batch gets."""
    row = 0
    for index, request in enumerate(batch.requests):
        begin, row = row, row + request.options.rows
        yield _rows(batch, index, begin, row)


def _rows(batch: Batch, index: int, begin: int, end: int) -> Mapping[str, Array]:
    """What one request of a batch gets."""
    if batch.error is not None:
        return {}
    if len(batch.requests) == 1:
        return batch.results
    if batch.parts:
        return batch.parts[index]
    return {name: array[begin:end] for name, array in batch.results.items()}


def arrival(request: InferRequest) -> Iterator[tuple[str, int]]:
    """The timestamps of a request until it is queued."""
    received = "WAITREAD" if request.carrier == "GRPC" else "RECV"
    yield f"{request.carrier}_{received}_START", request.received_ns
    yield f"{request.carrier}_{received}_END", request.received_ns
    yield "REQUEST_START", request.queued_ns
    yield "QUEUE_START", request.queued_ns


def departure(request: InferRequest, answered_ns: int) -> Iterator[tuple[str, int]]:
    """The timestamps of an answer that no model had to make for it."""
    yield "INFER_RESPONSE_COMPLETE", answered_ns
    yield "REQUEST_END", answered_ns
    yield f"{request.carrier}_SEND_START", answered_ns
    yield f"{request.carrier}_SEND_END", answered_ns


def _timestamps(
    request: InferRequest, batch: Batch, answered_ns: int, sent_ns: int, has_run: bool
) -> Iterator[tuple[str, int]]:
    """The names are those of the reference. A stage that the request did not reach has none."""
    yield from arrival(request)
    yield "COMPUTE_START", batch.start_ns - batch.gather_ns
    yield "COMPUTE_INPUT_END", batch.input_ns
    if has_run:
        # Of a batch that runs in a process some requests are answered before it is done.
        yield "COMPUTE_OUTPUT_START", batch.infer_ns or answered_ns
        yield "COMPUTE_END", batch.end_ns or answered_ns
        yield "INFER_RESPONSE_COMPLETE", answered_ns
    yield "REQUEST_END", answered_ns
    yield f"{request.carrier}_SEND_START", answered_ns
    yield f"{request.carrier}_SEND_END", sent_ns
