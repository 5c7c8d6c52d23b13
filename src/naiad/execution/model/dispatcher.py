"""The queue of one model version, and the instances that wait for work: the one is handed to the other in batches.

The event loop alone uses it, where it is not said otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic_ns
from typing import ClassVar

from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError, QueueFullError, RequestTimeoutError, UnavailableError
from naiad.eventloop.end_of_turn import end_of_turn_queue
from naiad.eventloop.timer import LoopTimer
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.gather import gather, is_small
from naiad.execution.batching.ragged import assemble, is_small_assembly
from naiad.execution.instances.decoupled import SteppedDecoupledInstance
from naiad.execution.instances.thread import ThreadInstance
from naiad.execution.model.custom_batching import CustomBatching
from naiad.execution.model.group_change import InstancePosition
from naiad.execution.model.instance_set import AnyInstance
from naiad.execution.model.queue_timeout import WaitingTime
from naiad.execution.model.responder import ModelResponder
from naiad.execution.worker.instance import ProcessInstance
from naiad.request import InferRequest
from naiad.scheduling.batcher.dynamic import Batcher, DynamicBatcher, SingleBatcher
from naiad.scheduling.batcher.limited import BatchLimit, ByteLimit, LimitedBatcher
from naiad.scheduling.queue.policy import PolicyQueue
from naiad.scheduling.testing import delayed


class Dispatcher:
    """Queues the requests of a model version and hands batches of them to its idle instances.

    Attributes:
        batcher: the queue; ``policies`` is what it stands on where the model has queue policies.
        batches: whether requests are worth waiting for each other.
        idle: instances that can take a batch; the list stays the same one.
        passive: those that get none, as in ``InstanceSet``.
        turn_is_set: whether ``turn`` will be called at the end of the loop's turn.
        outage: why no instance will be there for a while.
        is_limited: whether an idle instance may have to wait for its turn.
        tells_batches: steps of ensembles among the requests are told the batch that they run in.
    """

    is_limited: ClassVar[bool] = False

    def __init__(
        self,
        spec: ModelSpec,
        loop: asyncio.AbstractEventLoop,
        answers: ModelResponder,
        strategy: CustomBatching | None = None,
    ) -> None:
        self._spec = spec
        self._loop = loop
        self._end_of_turn = end_of_turn_queue(loop)
        self._answers = answers
        self.policies = PolicyQueue(spec.queue) if spec.queue is not None else None
        self._waiting_time: WaitingTime | None = None
        if self.policies is not None:
            self._waiting_time = WaitingTime(self.policies, loop, self._refuse_late, self._due)
        self.batcher = _make_batcher(spec, self.policies, strategy)
        self.batches = _is_dynamic(spec)
        self._gather = gather if spec.assembly is None else assemble
        self._is_small = is_small if spec.assembly is None else partial(is_small_assembly, spec=spec)
        self.idle: list[AnyInstance] = []
        self.passive: set[AnyInstance] = set()
        self.turn_is_set = False
        self.outage: UnavailableError | None = None
        self.tells_batches = False
        self._timer: LoopTimer | None = None

    # Instances that come and go

    def begin(self, places: Mapping[AnyInstance, InstancePosition]) -> None:
        """Take in the first instances, those that are to serve; called in a loading thread, before any starts.

        Raises:
            NaiadError: one could never run.
        """
        # One that dies while others start leaves the list again.
        self.idle[:] = places

    def join(self, places: Mapping[AnyInstance, InstancePosition]) -> None:
        """Further instances are about to come, to serve from ``serve_by`` on; errors as ``begin``."""

    def leave(self, instances: Sequence[AnyInstance]) -> None:
        """Instances have ended, or never began."""

    # Requests

    def push_by_policy(self, request: InferRequest) -> None:
        """Queue a request of a model that has ``policies``; errors as ``LoadedModel.submit``."""
        try:
            self.batcher.push(request)
        except QueueFullError as error:
            self._answers.statistics.count_failure(error.reason, monotonic_ns() - request.received_ns)
            raise self._answers.budget.refuse("queue", str(error)) from None
        if self._waiting_time is not None:
            self._waiting_time.watch()

    def push_again(self, request: InferRequest) -> None:
        """The model gave a request back: it waits for its turn again."""
        self._answers.statistics.pending += 1
        if self.policies is None:
            self.batcher.push(request)
        else:
            self.policies.append_again(request)
        if self.idle and not self.turn_is_set:
            self.turn_is_set = True
            self._loop.call_soon(self.turn)

    def wake(self) -> None:
        """A request came while an instance was idle and no turn was set."""
        if self.batches:
            self.turn_is_set = True
            self._end_of_turn.call(self._loop, self.turn)
        else:
            # Nothing that comes later in this turn could run with it, and its bytes are still in the cache.
            self.turn()

    def discard(self, request: InferRequest) -> bool:
        """Take a request out of the queue; False when it waits no more."""
        if not self.batcher.discard(request):
            return False
        self._answers.statistics.pending -= 1
        return True

    def fail_all(self, error: NaiadError) -> None:
        """Answer every request that waits with ``error``."""
        for request in self.batcher.drain():
            self._answers.statistics.pending -= 1
            self._answers.fail(request, error)
        self._answers.tell_when_drained()

    def _refuse_late(self, request: InferRequest) -> None:
        self._answers.statistics.pending -= 1
        self._answers.fail(request, RequestTimeoutError("Request timeout expired"))
        self._answers.tell_when_drained()

    def _due(self) -> None:
        if self.idle and not self.turn_is_set:
            self.turn()

    # Batches

    def turn(self) -> None:
        """End of a loop turn in which requests came or an instance became idle: hand batches out."""
        self.turn_is_set = False
        now_ns = monotonic_ns()
        if self._waiting_time is not None:
            self._waiting_time.look(now_ns)
        idle = self.idle
        while idle:
            requests, wake_ns = self.batcher.take(now_ns)
            if not requests:
                if wake_ns:
                    self._wake_at(wake_ns)
                return
            self._answers.statistics.pending -= len(requests)
            instance = idle.pop()
            if finished := self._run(instance, Batch(requests), now_ns):
                idle.append(instance)
                self._answers.settle(finished)
            now_ns = monotonic_ns()

    def _run(self, instance: AnyInstance, batch: Batch, now_ns: int) -> list[Batch] | None:
        """Hand a batch to an instance; gives what became of it when that is known at once."""
        if self.tells_batches:
            for request in batch.requests:
                request.joined(batch)
        if isinstance(instance, ProcessInstance):
            return instance.run(batch)
        if isinstance(instance, SteppedDecoupledInstance):
            instance.begin(batch)
            return None
        self._gather_small(batch, now_ns)
        return instance.run(batch)

    def _gather_small(self, batch: Batch, now_ns: int) -> None:
        """Put the inputs of a small batch together, which the instance does for a large one."""
        if self._is_small(batch):
            # Done here without a fight for the interpreter, which would cost the instance's thread far more.
            try:
                batch.inputs = self._gather(batch, self._spec)
            except Exception:
                # The instance meets it again, and there it fails this batch alone.
                batch.inputs = None
            batch.gather_ns = monotonic_ns() - now_ns

    def finished_in_thread(self, instance: ThreadInstance, batches: list[Batch]) -> None:
        """Batches are done; called in the thread of an instance."""
        try:
            self._loop.call_soon_threadsafe(self._finished, instance, batches)
        except RuntimeError:
            # The loop is closed: the server was told to abort and nobody waits for these answers.
            return

    def _finished(self, instance: ThreadInstance, batches: list[Batch]) -> None:
        self.freed(instance)
        self._answers.settle(batches)

    def freed(self, instance: AnyInstance) -> None:
        """An instance can take a batch; one that is passive gets none."""
        if instance not in self.passive:
            self.idle.append(instance)
            self.turn()

    def take_back(self, instance: AnyInstance) -> None:
        """An instance can take no batch for now."""
        if instance in self.idle:
            self.idle.remove(instance)

    def serve_by(self, fresh: list[AnyInstance]) -> None:
        """The instances have changed; ``fresh`` are those that can take a batch now."""
        self.idle[:] = [i for i in self.idle if i not in self.passive] + fresh
        if fresh:
            self.outage = None
        self.turn()

    def _wake_at(self, at_ns: int) -> None:
        if self._timer is None:
            self._timer = LoopTimer(self._loop, self.turn)
        self._timer.arm(at_ns)

    def close(self) -> None:
        """Give the loop's own resources back; the last call."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        if self._waiting_time is not None:
            self._waiting_time.close()
            self._waiting_time = None
        self.idle.clear()


def _make_batcher(spec: ModelSpec, queue: PolicyQueue | None, strategy: CustomBatching | None) -> Batcher:
    if spec.batching is None or spec.max_batch_size < 1:
        return SingleBatcher(queue)
    limits: list[BatchLimit] = []
    if spec.max_batch_bytes:
        limits.append(ByteLimit(spec.max_batch_bytes, {} if spec.assembly is None else spec.assembly.pads))
    if strategy is not None:
        limits.append(strategy)
    if limits:
        return delayed(LimitedBatcher(spec.batching, spec.max_batch_size, queue, limits))
    return delayed(DynamicBatcher(spec.batching, spec.max_batch_size, queue))


def _is_dynamic(spec: ModelSpec) -> bool:
    """Whether requests are put together into batches."""
    return spec.batching is not None and spec.max_batch_size >= 1
