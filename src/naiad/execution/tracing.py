"""Tracing the requests of one model version: from the times that its batches carry anyway to a trace's timestamps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic_ns
from typing import Final

from naiad.execution.batch import Batch
from naiad.request import InferRequest
from naiad.telemetry.trace_file import Trace
from naiad.telemetry.tracing import Sampler

MAX_ID: Final = 1024
"""Characters of a request's id that its trace has, so that traces that wait for the disk take little memory."""


class ModelTracer:
    """Traces those requests of a model version that ``sampler`` chooses; shown each request once it is answered."""

    __slots__ = ("_model", "_version", "sampler")

    def __init__(self, sampler: Sampler, model: str, version: int) -> None:
        self.sampler = sampler
        self._model = model
        self._version = version

    def trace(self, requests: Sequence[InferRequest], batch: Batch, answered_ns: int) -> None:
        """``requests`` of ``batch`` are answered; that began at ``answered_ns``.

        Those that other models sent are left out.
        """
        sent_ns = monotonic_ns()
        for request in requests:
            if request.carrier and (number := self.sampler.take()):
                timestamps = tuple(_timestamps(request, batch, answered_ns, sent_ns))
                self.sampler.put(Trace(number, self._model, self._version, request.id[:MAX_ID], timestamps))


def _timestamps(request: InferRequest, batch: Batch, answered_ns: int, sent_ns: int) -> Iterator[tuple[str, int]]:
    """The names are those of the reference. A stage that the request did not reach has none."""
    received = "WAITREAD" if request.carrier == "GRPC" else "RECV"
    yield f"{request.carrier}_{received}_START", request.received_ns
    yield f"{request.carrier}_{received}_END", request.received_ns
    yield "REQUEST_START", request.queued_ns
    yield "QUEUE_START", request.queued_ns
    yield "COMPUTE_START", batch.start_ns - batch.gather_ns
    yield "COMPUTE_INPUT_END", batch.input_ns
    if batch.error is None:
        # Of a batch that runs in a process some requests are answered before it is done.
        yield "COMPUTE_OUTPUT_START", batch.infer_ns or answered_ns
        yield "COMPUTE_END", batch.end_ns or answered_ns
        yield "INFER_RESPONSE_COMPLETE", answered_ns
    yield "REQUEST_END", answered_ns
    yield f"{request.carrier}_SEND_START", answered_ns
    yield f"{request.carrier}_SEND_END", sent_ns
