"""An instance in a thread of its own whose model gets the requests of a batch as they are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic_ns

from naiad.backend_api.request_batch import RequestBatchInstance, RequestResult
from naiad.config.spec import ModelSpec
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.batch_queue import BatchQueue
from naiad.execution.instances.instance_thread import InstanceThread
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.instances.runner import close_instance, run_failed
from naiad.execution.instances.streaming import StreamEventSink
from naiad.execution.instances.warmup import Warmup
from naiad.request import InferRequest
from naiad.worker.ipc.frames import FLAG_ERROR, FLAG_FINAL, FLAG_OWN

logger = logging.getLogger("naiad")


class RequestBatchThread(ModelInstance):
    """Runs a ``RequestBatchInstance`` in its own thread, one batch after another.

    Args:
        name: of the instance and of its thread.
        spec: of the model.
        create: makes the instance; called in the new thread.
        warmup: runs samples behind it; None for a passive instance.
        events: takes the responses.
        loop: the event loop of the server.
    """

    may_write_inputs = True
    runs_ahead = 1

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        create: Callable[[], RequestBatchInstance],
        warmup: Warmup | None,
        events: StreamEventSink,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.name = name
        self._spec = spec
        self._create = create
        self._warmup = warmup
        self._events = events
        self._loop = loop
        self._queue = BatchQueue()
        self._thread = InstanceThread(name, self._make, self._serve)

    def start(self) -> None:
        """Create the instance and wait until it is there; called by a loading thread.

        Raises:
            NaiadError: the instance could not be created.
        """
        self._thread.start()

    def stop(self) -> None:
        """Let the thread finish its batches, close the instance and end."""
        self._queue.end()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end that ``stop`` asked for, at most ``timeout`` seconds; True when the thread has ended, or was
        never started."""
        return self._thread.join(timeout)

    def run(self, batch: Batch) -> None:
        """Queue a batch for the thread; ``StreamEventSink.worker_responded`` gets its responses."""
        self._queue.put(batch)

    def run_ahead(self, batch: Batch) -> None:
        self._queue.put_ahead(batch)

    def drop(self, batch: Batch) -> bool:
        return self._queue.drop(batch)

    def _take(self, batch: Batch, results: Sequence[RequestResult]) -> None:
        outputs = [result.outputs for result in results if result.error is None and result.outputs is not None]
        if len(outputs) == len(results):
            # The usual case: counted once for all.
            self._events.worker_completed(self, batch, outputs)
            return
        # The instance gets its next batch before the callers get their responses, and runs it meanwhile.
        self._events.step_finished(self, batch)
        for request, result in zip(batch.requests, results, strict=True):
            flags = FLAG_FINAL
            if result.error is not None:
                flags |= FLAG_ERROR | FLAG_OWN if result.is_own else FLAG_ERROR
            self._events.worker_responded(request, Response(0, result.outputs, result.error, flags), batch)

    # In the thread

    def _make(self) -> RequestBatchInstance:
        instance = self._warm(self._create())
        self.device = instance.device
        return instance

    def _serve(self, instance: RequestBatchInstance) -> None:
        get = self._queue.get
        while (batch := get()) is not None:
            batch.start_ns = batch.input_ns = monotonic_ns()
            results = run_requests(instance, batch.requests, self._spec)
            batch.infer_ns = batch.end_ns = monotonic_ns()
            try:
                self._loop.call_soon_threadsafe(self._take, batch, results)
            except RuntimeError:
                # The loop is closed: the server did not wait for this thread.
                logger.debug("the responses of '%s' came after the end of the server", self.name)
            # While the thread waits it would hold the batch, with its tensors.
            del batch, results

    def _warm(self, instance: RequestBatchInstance) -> RequestBatchInstance:
        def run(batch: Batch) -> Sequence[str]:
            try:
                results = instance.execute(batch.requests)
            except Exception as error:
                return (str(run_failed(self._spec.name, error)),)
            return [str(result.error) for result in results if result.error is not None]

        warmup, self._warmup = self._warmup, None
        if warmup is not None:
            try:
                warmup.run_all(self.name, run)
            except BaseException:
                close_instance(instance, self.name)
                raise
        return instance


def run_requests(
    instance: RequestBatchInstance, requests: Sequence[InferRequest], spec: ModelSpec
) -> Sequence[RequestResult]:
    """Run requests together; never raises. When that fails they run again one by one, so that one bad input costs only
    its own request. Those whose tensors may be on a device do not: the model may have written to them."""
    try:
        return instance.execute(requests)
    # Whatever a model raises, SystemExit included, ends its requests and nothing else.
    except BaseException as error:
        failure = run_failed(spec.name, error)
    if len(requests) > 1 and spec.splits_failed and all(request.options.resident is None for request in requests):
        return [run_requests(instance, [request], spec)[0] for request in requests]
    return [RequestResult(None, failure)] * len(requests)
