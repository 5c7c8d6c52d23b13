"""What differs for a model with sequences when its requests are answered, and when its processes tell something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic_ns

from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.instances.decoupled import SteppedInstance
from naiad.execution.model.accounting import count_batch
from naiad.execution.model.responder import ModelAnswers
from naiad.execution.model.worker_events import ChildEvents
from naiad.execution.sequence.dispatcher import SequenceDispatcher
from naiad.execution.sequence.step import EmptyStep, SequenceBatch, Step
from naiad.execution.worker.codec.writer import Response
from naiad.execution.worker.framework_instance import HostedInstance
from naiad.execution.worker.instance import ProcessInstance
from naiad.request import Array, InferRequest
from naiad.worker.ipc.frames import FLAG_EMPTY, FLAG_ERROR, FLAG_FINAL, FLAG_RESCHEDULE


class SequenceAnswers(ModelAnswers):
    """Answers the requests behind steps; rows without a request are neither answered nor counted.

    Attributes:
        has_live: whether sequences are under way for whose end the model is to wait.
    """

    __slots__ = ("has_live",)
    has_live: Callable[[], bool]

    def count(self, batch: Batch) -> int:
        """As ``ModelAnswers.count``."""
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
            error = step.failure if isinstance(step, Step) else None
            if error is None:
                others.append(step)
                continue
            self.let_go(step)
            self.statistics.count_failure(error.reason, monotonic_ns() - step.received_ns)
            self.log_error(step, error)
        return others

    def fail(self, request: InferRequest, error: NaiadError) -> None:
        """As ``ModelAnswers.fail``; nothing for an empty row."""
        if not isinstance(request, EmptyStep):
            super().fail(request, error)

    @property
    def is_drained(self) -> bool:
        """Nothing is left to be waited for."""
        return self.in_flight == 0 and not self.has_live()

    def when_drained(self, callback: Callable[[], object]) -> None:
        """As ``ModelAnswers.when_drained``."""
        if self.is_drained:
            callback()
        else:
            self._drained.append(callback)

    def tell_when_drained(self) -> None:
        """As ``ModelAnswers.tell_when_drained``."""
        if self._drained and self.is_drained:
            super().tell_when_drained()


class SequenceEvents(ChildEvents):
    """Ends the steps that processes have run before it answers them, so that the next ones can be part of the batch
    that the instance gets before the callers get their answers."""

    def __init__(self, spec: ModelSpec, answers: ModelAnswers, queue: SequenceDispatcher) -> None:
        super().__init__(spec, answers, queue)
        self._sequences = queue

    def child_answered(self, instance: ProcessInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """As ``ChildEvents.child_answered``."""
        queue = self._sequences
        for request, arrays in zip(batch.requests, outputs, strict=True):
            if isinstance(request, Step):
                if queue.is_stateful:
                    queue.keep_states_of(batch, request, arrays)
                queue.end(request)
        if queue.waits_for_more(instance, batch):
            queue.freed_late(instance)
            self._answer(batch, outputs)
        else:
            super().child_answered(instance, batch, outputs)

    def child_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """As ``ChildEvents.child_responded``."""
        queue = self._sequences
        if not isinstance(request, Step):
            return
        if queue.is_stateful and response.outputs is not None:
            wrong = queue.keep_states(request, response.outputs)
            if wrong is not None:
                response = Response(response.request, None, wrong, response.flags | FLAG_ERROR | FLAG_EMPTY)
        if response.flags & FLAG_FINAL and not response.flags & FLAG_RESCHEDULE:
            queue.end(request)
            queue.wake_later()
        super().child_responded(request, response, batch)

    def child_finished(self, instance: ProcessInstance, batch: Batch) -> None:
        """As ``ChildEvents.child_finished``, but the instance gets its next batch at the end of the loop's turn.

        The responses that came with this are taken by then, so that the next requests can be part of it.
        """
        self._answers.count_execution(batch)
        if instance not in self._sequences.passive:
            self._sequences.found(instance)
            self._sequences.outage = None
            self._sequences.freed_soon(instance)

    def step_finished(self, instance: SteppedInstance, batch: Batch) -> None:
        """As ``ChildEvents.step_finished``, at the end of the loop's turn."""
        self._answers.count_execution(batch)
        if instance not in self._sequences.passive:
            self._sequences.freed_soon(instance)

    def hosted_finished(self, instance: HostedInstance, batches: list[Batch], is_free: bool) -> None:
        """As ``ChildEvents.hosted_finished``."""
        self._sequences.end_batches(batches)
        super().hosted_finished(instance, batches, is_free)
        self._sequences.wake_later()

    def child_died(self, instance: ProcessInstance) -> None:
        """As ``ChildEvents.child_died``; what a Python model knew of its sequences is gone with its process."""
        super().child_died(instance)
        if instance not in self._sequences.passive:
            self._sequences.lost(instance, forgets=not isinstance(instance, HostedInstance))

    def child_down(self, instance: ProcessInstance) -> None:
        """As ``ChildEvents.child_down``; nobody waits for this instance, even when others are left."""
        if instance not in self._sequences.passive:
            self._sequences.lost(instance, forgets=True)
        super().child_down(instance)

    def child_revived(self, instance: ProcessInstance) -> None:
        """As ``ChildEvents.child_revived``."""
        self._sequences.found(instance)
        super().child_revived(instance)
