"""An instance in a thread of its own whose model gets the requests of a batch as they are."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import monotonic_ns

from naiad.backend_api.request_batch import RequestBatchInstance, RequestResult
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.instances.runner import close_instance, failed_to_start
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
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._created = threading.Event()
        self._failure: NaiadError | None = None
        self._thread = threading.Thread(target=self._main, name=f"naiad-{name}", daemon=True)

    def start(self) -> None:
        """Create the instance and wait until it is there; called by a loading thread.

        Raises:
            NaiadError: the instance could not be created.
        """
        self._thread.start()
        self._created.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Let the thread finish its batches, close the instance and end."""
        self._queue.put(None)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end that ``stop`` asked for, at most ``timeout`` seconds; True when the thread has ended, or was
        never started."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def run(self, batch: Batch) -> None:
        """Queue a batch for the thread; ``StreamEventSink.worker_responded`` gets its responses."""
        self._queue.put(batch)

    def _take(self, batch: Batch, results: Sequence[RequestResult]) -> None:
        # The instance gets its next batch before the callers get their responses, and runs it meanwhile.
        self._events.step_finished(self, batch)
        for request, result in zip(batch.requests, results, strict=True):
            flags = FLAG_FINAL
            if result.error is not None:
                flags |= FLAG_ERROR | FLAG_OWN if result.is_own else FLAG_ERROR
            self._events.worker_responded(request, Response(0, result.outputs, result.error, flags), batch)

    # In the thread

    def _main(self) -> None:
        try:
            instance = self._warm(self._create())
        except NaiadError as error:
            self._failure = error
            return
        except BaseException as error:
            self._failure = failed_to_start(self.name, error)
            return
        finally:
            # Also after a failure, since ``start`` waits for it.
            self._created.set()
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
        close_instance(instance, self.name)

    def _warm(self, instance: RequestBatchInstance) -> RequestBatchInstance:
        def run(batch: Batch) -> Sequence[str]:
            try:
                results = instance.execute(batch.requests)
            except Exception as error:
                return (str(_failure(error, self._spec)),)
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
    its own request."""
    try:
        return instance.execute(requests)
    # Whatever a model raises, SystemExit included, ends its requests and nothing else.
    except BaseException as error:
        failure = _failure(error, spec)
    if len(requests) > 1 and spec.splits_failed:
        return [run_requests(instance, [request], spec)[0] for request in requests]
    return [RequestResult(None, failure)] * len(requests)


def _failure(error: BaseException, spec: ModelSpec) -> NaiadError:
    if isinstance(error, NaiadError):
        return error
    return BackendError(f"model '{spec.name}' failed: {type(error).__name__}: {error}")
