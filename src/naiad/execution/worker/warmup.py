"""The warm-up of an instance in a worker: its samples are ordinary requests."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from naiad.config.spec import ModelSpec
from naiad.errors import ModelLoadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.warmup import Sample, Warmup
from naiad.execution.worker.events import WorkerEventSink
from naiad.execution.worker.instance import ProcessInstance
from naiad.request import Array, InferRequest
from naiad.worker.ipc.frames import FLAG_RESCHEDULE

logger = logging.getLogger("naiad")

LOOK_S: Final = 0.1
"""How soon a warm-up that waits for a worker notices that it was cancelled."""
_WARMING: Final = "it was started again and is warming up"


class WarmProcess:
    """Starts a worker and runs all samples in it.

    Args:
        instance: not started yet.
        events: takes the events of the worker before and after the warm-up.
    """

    def __init__(
        self,
        instance: ProcessInstance,
        spec: ModelSpec,
        warmup: Warmup,
        events: WorkerEventSink[ProcessInstance],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._instance = instance
        self._spec = spec
        self._warmup = warmup
        self._events = events
        self._loop = loop
        self._is_stopped = False

    def start(self) -> None:
        """Start the worker and run the samples; errors of ``ProcessInstance.start`` and ``Warmup.run_all``."""
        self._instance.start()
        self.run()

    def run(self) -> None:
        """Run the samples in a worker that has started; errors of ``Warmup.run_all``."""
        self._warmup.run_all(self._instance.name, self._run)
        # Samples are no work: a worker that dies in its first request must not be restarted at once again and again.
        self._instance.count_work()

    def stop(self) -> None:
        """Cancel the warm-up and stop the instance."""
        self._is_stopped = True
        self._instance.stop()

    def _run(self, batch: Batch) -> Sequence[str]:
        run = WarmupRun(self._instance, self._spec, self._events)
        try:
            self._loop.call_soon_threadsafe(run.begin, batch)
        except RuntimeError as error:
            raise ModelLoadError("the warm-up was cancelled: the server has ended") from error
        # Not without limit: this thread has to notice that the warm-up is no longer wanted.
        while not run.is_over.wait(LOOK_S):
            self._warmup.check()
            if self._is_stopped:
                raise ModelLoadError("the warm-up was cancelled: another instance did not start")
        return run.errors


class WarmupRun:
    """One batch of a warm-up: takes the events of its worker. Used on the event loop.

    Attributes:
        errors: what failed, each as its text.
        is_over: set when the worker is free again, or gone.
    """

    def __init__(self, instance: ProcessInstance, spec: ModelSpec, events: WorkerEventSink[ProcessInstance]) -> None:
        self.errors: list[str] = []
        self.is_over = threading.Event()
        self._instance = instance
        self._spec = spec
        self._events = events
        self._open: set[InferRequest] = set()
        self._responded: set[InferRequest] = set()
        self._again: list[InferRequest] = []
        self._is_busy = False

    def begin(self, batch: Batch) -> None:
        """Hand the batch to the worker, and take its events from now on."""
        self._open.update(batch.requests)
        self._instance.events = self
        self._run(batch)

    def _run(self, batch: Batch) -> None:
        if self.is_over.is_set():
            return
        if not self._instance.is_up:
            self._end(f"instance '{self._instance.name}' has ended: {self._instance.problem}")
            return
        self._is_busy = True
        if refused := self._instance.run(batch):
            self._end(*(str(one.error) for one in refused))

    def _end(self, *errors: str) -> None:
        self.errors.extend(errors)
        if not self.is_over.is_set():
            # Before ``is_over``: the waiting thread may let the instance serve at once.
            self._instance.events = self._events
            self.is_over.set()

    def _continue(self) -> None:
        """Run rescheduled requests once more; end when no request is left."""
        if self._is_busy:
            return
        if self._again:
            # Further responses of the same frame may follow, and reschedule more requests.
            self._is_busy = True
            asyncio.get_running_loop().call_soon(self._run_again)
        elif not self._open:
            self._end()

    def _run_again(self) -> None:
        requests, self._again = self._again, []
        self._run(Batch(requests))

    # Events of the worker

    def worker_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """Take a response to a request, perhaps its last."""
        if response.error is not None:
            self.errors.append(str(response.error))
        if not response.final:
            self._responded.add(request)
            return
        if response.flags & FLAG_RESCHEDULE:
            self._again.append(request)
        else:
            self._open.discard(request)
            is_empty = response.outputs is None and response.error is None and request not in self._responded
            if is_empty and not self._spec.decoupled:
                self.errors.append(f"model '{self._spec.name}' ended the request without a response")
        self._continue()

    def worker_completed(self, instance: ProcessInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """Every request of the batch has its only response."""
        self._is_busy = False
        self._open.difference_update(batch.requests)
        self._continue()

    def worker_finished(self, instance: ProcessInstance, batch: Batch) -> None:
        """The batch is over; requests of it may still be open."""
        self._is_busy = False
        self._continue()

    def framework_finished(self, instance: ProcessInstance, batches: list[Batch], is_free: bool) -> None:
        """The framework has run the batch: end with its errors."""
        self._end(*(str(batch.error) for batch in batches if batch.error is not None))

    def worker_died(self, instance: ProcessInstance) -> None:
        """The worker is gone; its requests get their errors once its exit reason is known."""
        self._events.worker_died(instance)
        if not self._open:
            self._end(f"instance '{instance.name}' has ended: {instance.problem}")
        self._is_busy = False

    def worker_down(self, instance: ProcessInstance) -> None:
        """The worker will be down for a while."""
        self._events.worker_down(instance)
        self._end(f"instance '{instance.name}' has ended: {instance.problem}")

    def worker_ready(self, instance: ProcessInstance) -> None:
        """The worker runs again."""
        self._events.worker_ready(instance)
        self._end(f"instance '{instance.name}' ended and was started again")


class RestartWarmup:
    """Called with an instance on the event loop when its worker runs again.

    Args:
        spec: of the model.
        samples: makes the samples; called in a thread, each time, since they may be too large to be cached.
        events: gets ``worker_ready`` when the instance is warm. An instance that fails to run its samples serves
            nevertheless: its version was ready before, and is better slow than gone.
    """

    def __init__(
        self,
        spec: ModelSpec,
        samples: Callable[[], Sequence[Sample]],
        events: WorkerEventSink[ProcessInstance],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._spec = spec
        self._samples = samples
        self._events = events
        self._loop = loop

    def __call__(self, instance: ProcessInstance) -> None:
        # The instance is up but gets no batch; ``problem`` keeps a change of groups from letting it serve.
        instance.problem = _WARMING
        # With its pid: another worker may have taken its place when the samples have run.
        name = f"naiad-warm-{instance.name}"
        threading.Thread(target=self._warm, args=[instance, instance.pid], name=name, daemon=True).start()

    def _warm(self, instance: ProcessInstance, pid: int) -> None:
        try:
            warmup = Warmup(self._samples(), lambda: "" if _is_there(instance, pid) else "its process has ended")
            WarmProcess(instance, self._spec, warmup, self._events, self._loop).run()
        except Exception as error:
            logger.warning("%s is not warm: %s", instance.name, error)
        # The server may have ended meanwhile.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._done, instance, pid)

    def _done(self, instance: ProcessInstance, pid: int) -> None:
        if _is_there(instance, pid):
            instance.problem = ""
            self._events.worker_ready(instance)


def _is_there(instance: ProcessInstance, pid: int) -> bool:
    """Whether the instance still has that process. If not, another call warms its successor up."""
    return instance.is_up and instance.pid == pid
