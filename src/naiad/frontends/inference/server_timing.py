"""``Server-Timing``: where the time of a request went, for callers that ask for it with ``want-server-timing: 1``.

Source: W3C "Server Timing"; durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic_ns
from typing import Final

from naiad.execution.batching.batch import Batch
from naiad.frontends.inference.client_request import ClientRequest
from naiad.request import FROM_CACHE, BatchTimes
from naiad.scheduling.batcher.dynamic import DELAY

WANTED: Final = "want-server-timing"
"""The header of HTTP, or the metadata of gRPC, that asks for it."""
FIELD: Final = "server-timing"
_NO: Final = ("", "0", "false", "?0")


def wants_timing(headers: Mapping[str, str]) -> bool:
    """Whether the caller asks for the times; ``headers`` have lower-case names."""
    return headers.get(WANTED, "").lower() not in _NO


class RequestTiming:
    """The times of one request, once it is known in which batch it runs.

    The batch refers to its requests: whoever holds this drops it with the response.
    """

    __slots__ = ("_batch", "_delay_ns", "_ready_ns", "_request")

    def __init__(self, request: ClientRequest) -> None:
        """Called before the request is submitted to its model, which notes batches from now on."""
        batching = request.model.spec.batching
        self._request = request
        self._delay_ns = 0 if batching is None else batching.max_queue_delay_ns
        self._batch: BatchTimes | None = None
        self._ready_ns = 0
        request.model.note_batches()

    def joined(self, batch: BatchTimes) -> None:
        """Note the batch, which is about to run."""
        self._batch = batch
        # Without a delay no request waits for others: then they all wait for an instance.
        if self._delay_ns and isinstance(batch, Batch) and batch.reason:
            first, last = batch.requests[0], batch.requests[-1]
            self._ready_ns = first.queued_ns + self._delay_ns if batch.reason == DELAY else last.queued_ns

    def text(self, succeeded: bool) -> str:
        """The value of the field for a response that is sent now.

        ``queue`` is the wait for an instance and ``batch`` the wait for others to join. Without a batch ``cache`` is
        the look-up in the response cache, or ``infer`` the run on the event loop; an error has the total alone then.
        """
        request, batch, now_ns = self._request, self._batch, monotonic_ns()
        read = "read", request.queued_ns - request.received_ns
        stages: list[tuple[str, int]] = []
        if batch is not None and batch.start_ns:
            stages = [read, *self._stages(batch, now_ns)]
        elif succeeded:
            stages = [read, ("cache" if batch is FROM_CACHE else "infer", now_ns - request.queued_ns)]
        stages.append(("total", now_ns - request.received_ns))
        return ", ".join(f"{name};dur={max(0, ns) / 1e6:.3f}" for name, ns in stages)

    def _stages(self, batch: BatchTimes, now_ns: int) -> list[tuple[str, int]]:
        queued_ns = self._request.queued_ns
        begun_ns = batch.start_ns - batch.gather_ns
        waited_ns = max(0, begun_ns - queued_ns)
        batch_ns = min(waited_ns, max(0, self._ready_ns - queued_ns))
        # In a worker a request may get its response before its batch has ended.
        infer_ns = batch.infer_ns or now_ns
        return [
            ("queue", waited_ns - batch_ns),
            ("batch", batch_ns),
            ("input", batch.input_ns - begun_ns),
            ("infer", infer_ns - batch.input_ns),
            ("output", now_ns - infer_ns),
        ]
