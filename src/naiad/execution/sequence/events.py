"""What differs for a model with sequences when its requests are answered, and when its processes tell something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic_ns

from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.decoupled import SteppedDecoupledInstance
from naiad.execution.model.accounting import count_batch
from naiad.execution.model.responder import ModelResponder
from naiad.execution.model.worker_events import WorkerEvents
from naiad.execution.sequence.dispatcher import SequenceDispatcher
from naiad.execution.sequence.step import EmptyRow, SequenceBatch, SequenceRequest
from naiad.execution.worker.framework_instance import FrameworkInstance
from naiad.execution.worker.instance import ProcessInstance
from naiad.request import Array, InferRequest
from naiad.worker.ipc.frames import FLAG_EMPTY, FLAG_ERROR, FLAG_FINAL, FLAG_RESCHEDULE


class SequenceResponder(ModelResponder):
    """Answers the requests behind steps; rows without a request are neither answered nor counted.

    Attributes:
        has_live: whether sequences are under way for whose end the model is to wait.
    """

    __slots__ = ("has_live",)
    has_live: Callable[[], bool]

    def count(self, batch: Batch) -> int:
        """As ``ModelResponder.count``."""
        if not isinstance(batch, SequenceBatch):
            return super().count(batch)
        steps = self._without_failed(batch.steps) if batch.has_failed else batch.steps
        if len(steps) == len(batch.requests):
            return super().count(batch)
        self.in_flight -= len(steps)
        return count_batch(self.statistics, self.budget, batch, self.clock.wall_ms(), steps)

    def _without_failed(self, steps: Iterable[InferRequest]) -> list[InferRequest]:
        """Count those that are about to be answered with their ``failure``; gives the others."""
        others = []
        for step in steps:
            error = step.failure if isinstance(step, SequenceRequest) else None
            if error is None:
                others.append(step)
                continue
            self.let_go(step)
            self.statistics.count_failure(error.reason, monotonic_ns() - step.received_ns)
            self.log_error(step, error)
        return others

    def fail(self, request: InferRequest, error: NaiadError) -> None:
        """As ``ModelResponder.fail``; nothing for an empty row."""
        if not isinstance(request, EmptyRow):
            super().fail(request, error)

    @property
    def is_drained(self) -> bool:
        """Nothing is left to be waited for."""
        return self.in_flight == 0 and not self.has_live()

    def when_drained(self, callback: Callable[[], object]) -> None:
        """As ``ModelResponder.when_drained``."""
        if self.is_drained:
            callback()
        else:
            self._drained.append(callback)

    def tell_when_drained(self) -> None:
        """As ``ModelResponder.tell_when_drained``."""
        if self._drained and self.is_drained:
            super().tell_when_drained()


class SequenceWorkerEvents(WorkerEvents):
    """Ends the steps that processes have run before it answers them, so that the next ones can be part of the batch
    that the instance gets before the callers get their answers."""

    def __init__(self, spec: ModelSpec, answers: ModelResponder, queue: SequenceDispatcher) -> None:
        super().__init__(spec, answers, queue)
        self._sequences = queue

    def worker_answered(self, instance: ProcessInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """As ``WorkerEvents.worker_answered``."""
        queue = self._sequences
        for request, arrays in zip(batch.requests, outputs, strict=True):
            if isinstance(request, SequenceRequest):
                if queue.is_stateful:
                    queue.keep_states_of(batch, request, arrays)
                queue.end(request)
        if queue.waits_for_more(instance, batch):
            queue.freed_late(instance)
            self._answer(batch, outputs)
        else:
            super().worker_answered(instance, batch, outputs)

    def worker_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """As ``WorkerEvents.worker_responded``."""
        queue = self._sequences
        if not isinstance(request, SequenceRequest):
            return
        if queue.is_stateful and response.outputs is not None:
            wrong = queue.keep_states(request, response.outputs)
            if wrong is not None:
                response = Response(response.request, None, wrong, response.flags | FLAG_ERROR | FLAG_EMPTY)
        if response.flags & FLAG_FINAL and not response.flags & FLAG_RESCHEDULE:
            queue.end(request)
            queue.wake_later()
        super().worker_responded(request, response, batch)

    def worker_finished(self, instance: ProcessInstance, batch: Batch) -> None:
        """As ``WorkerEvents.worker_finished``, but the instance gets its next batch at the end of the loop's turn.

        The responses that came with this are taken by then, so that the next requests can be part of it.
        """
        self._answers.count_execution(batch)
        if instance not in self._sequences.passive:
            self._sequences.found(instance)
            self._sequences.outage = None
            self._sequences.freed_soon(instance)

    def step_finished(self, instance: SteppedDecoupledInstance, batch: Batch) -> None:
        """As ``WorkerEvents.step_finished``, at the end of the loop's turn."""
        self._answers.count_execution(batch)
        if instance not in self._sequences.passive:
            self._sequences.freed_soon(instance)

    def framework_finished(self, instance: ProcessInstance, batches: list[Batch], is_free: bool) -> None:
        """As ``WorkerEvents.framework_finished``."""
        self._sequences.end_batches(batches)
        super().framework_finished(instance, batches, is_free)
        self._sequences.wake_later()

    def worker_died(self, instance: ProcessInstance) -> None:
        """As ``WorkerEvents.worker_died``; what a Python model knew of its sequences is gone with its process."""
        super().worker_died(instance)
        if instance not in self._sequences.passive:
            self._sequences.lost(instance, forgets=not isinstance(instance, FrameworkInstance))

    def worker_down(self, instance: ProcessInstance) -> None:
        """As ``WorkerEvents.worker_down``; nobody waits for this instance, even when others are left."""
        if instance not in self._sequences.passive:
            self._sequences.lost(instance, forgets=True)
        super().worker_down(instance)

    def worker_ready(self, instance: ProcessInstance) -> None:
        """As ``WorkerEvents.worker_ready``."""
        self._sequences.found(instance)
        super().worker_ready(instance)
