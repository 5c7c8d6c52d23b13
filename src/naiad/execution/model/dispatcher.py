"""The dispatcher of one model version: queues requests and hands batches of them to idle instances.

Belongs to the event loop, except where a method says otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic_ns

from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError, QueueFullError, RequestTimeoutError, UnavailableError
from naiad.eventloop.end_of_turn import end_of_turn_queue
from naiad.eventloop.timer import LoopTimer
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.model.custom_batching import CustomBatching
from naiad.execution.model.group_change import InstancePosition
from naiad.execution.model.queue_timeout import WaitingTime
from naiad.execution.model.rate_limits import OPEN_GATE, RateLimitGate, RateLimits
from naiad.execution.model.responder import ModelResponder
from naiad.request import Array, InferRequest
from naiad.scheduling.batcher.dynamic import Batcher, DynamicBatcher, SingleBatcher
from naiad.scheduling.batcher.limited import BatchLimit, ByteLimit, LimitedBatcher
from naiad.scheduling.queue.policy import PolicyQueue
from naiad.scheduling.testing import delayed


class Dispatcher:
    """Queues the requests of a model version and hands batches of them to its idle instances.

    Attributes:
        batcher: the queue; its requests lie in ``policies`` where the model has queue policies.
        batches: whether a request waits for others that may join its batch.
        idle: instances that can take a batch; always the same list.
        passive: instances that get no batches, as in ``InstanceSet``.
        turn_is_set: whether ``turn`` will be called at the end of the loop's turn.
        outage: why no instance will be there for a while.
        gate: decides when an idle instance may run.
        notes_batches: requests note the batch that they run in, as some are steps of ensembles.
    """

    def __init__(
        self,
        spec: ModelSpec,
        loop: asyncio.AbstractEventLoop,
        responder: ModelResponder,
        strategy: CustomBatching | None = None,
        limits: RateLimits | None = None,
    ) -> None:
        self._spec = spec
        self._loop = loop
        self._end_of_turn = end_of_turn_queue(loop)
        self._responder = responder
        self.policies = PolicyQueue(spec.queue) if spec.queue is not None else None
        self._waiting_time: WaitingTime | None = None
        if self.policies is not None:
            self._waiting_time = WaitingTime(self.policies, loop, self._refuse_late, self._due)
        self.batcher = _make_batcher(spec, self.policies, strategy)
        self.batches = _is_dynamic(spec)
        self.idle: list[ModelInstance] = []
        self.passive: set[ModelInstance] = set()
        self.gate = OPEN_GATE if limits is None else RateLimitGate(limits, loop, self.run_next)
        self.turn_is_set = False
        self.outage: UnavailableError | None = None
        self.notes_batches = False
        self._timer: LoopTimer | None = None

    # Instances that come and go

    def begin(self, places: Mapping[ModelInstance, InstancePosition]) -> None:
        """Register the first instances that serve; called in a loading thread, before any starts.

        Raises:
            NaiadError: an instance could never run.
        """
        self.gate.begin(places)
        # A worker that dies while other instances start is removed from the list again.
        self.idle[:] = places

    def join(self, places: Mapping[ModelInstance, InstancePosition]) -> None:
        """Register further instances, which serve from ``serve_by`` on; errors as ``begin``."""
        self.gate.join(places)

    def leave(self, instances: Sequence[ModelInstance]) -> None:
        """Forget instances that have ended, or never began."""
        self.gate.leave(instances)

    # Requests

    def push_by_policy(self, request: InferRequest) -> None:
        """Queue a request of a model that has ``policies``; errors as ``LoadedModel.submit``."""
        try:
            self.batcher.push(request)
        except QueueFullError as error:
            self._responder.statistics.count_failure(error.reason, monotonic_ns() - request.received_ns)
            raise self._responder.budget.refuse("queue", str(error)) from None
        if self._waiting_time is not None:
            self._waiting_time.watch()

    def requeue(self, request: InferRequest) -> None:
        """Queue a request again that the model released for that (``FLAG_RESCHEDULE``)."""
        self._responder.statistics.pending += 1
        if self.policies is None:
            self.batcher.push(request)
        else:
            # It was admitted before, so the limits of the policies do not apply.
            self.policies.append_again(request)
        self.wake_later()

    def wake_later(self) -> None:
        """Look in the loop's next turn whether an idle instance can run after some change."""
        if self.idle and not self.turn_is_set:
            self.turn_is_set = True
            self._loop.call_soon(self.turn)

    def wake(self) -> None:
        """A request came while an instance was idle and no turn was set."""
        if self.batches:
            self.turn_is_set = True
            self._end_of_turn.call(self._loop, self.turn)
        else:
            # Nothing that comes later in this turn could run with it, and its bytes are still in the processor's cache.
            self.turn()

    def cancel(self, request: InferRequest) -> InferRequest | None:
        """Take a request whose caller has gone out of the queue, and respond to it.

        Returns:
            None; for a request that no longer waits, the request that instances run for it.
        """
        if not self.batcher.discard(request):
            return request
        self._responder.statistics.pending -= 1
        if self.gate.is_limited:
            # The rest may have to wait for others. Many may leave together, and one look is enough.
            self.wake_later()
        self._responder.fail_cancelled(request)
        return None

    def as_run(self, request: InferRequest) -> InferRequest:
        """The request that instances run for a submitted one: itself, or its step of a sequence."""
        return request

    def fail_all(self, error: NaiadError) -> None:
        """Respond to every request that waits with ``error``."""
        for request in self.batcher.drain():
            self._responder.statistics.pending -= 1
            self._responder.fail(request, error)
        self._responder.notify_drained()

    def _refuse_late(self, request: InferRequest) -> None:
        self._responder.statistics.pending -= 1
        self._responder.fail(request, RequestTimeoutError("Request timeout expired"))
        self._responder.notify_drained()

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
        if self.gate.is_limited:
            self._request_turns(now_ns)
            self.gate.hand_out()
            return
        idle = self.idle
        while idle:
            requests, wake_ns = self.batcher.take(now_ns)
            if not requests:
                if wake_ns:
                    self._wake_at(wake_ns)
                return
            self._responder.statistics.pending -= len(requests)
            instance = idle.pop()
            if finished := self._run(instance, Batch(requests), now_ns):
                # Idle before the responses: a caller's next request may come within them.
                idle.append(instance)
                self._responder.settle(finished)
            # An inline instance has used up time, and deadlines may have passed.
            now_ns = monotonic_ns()

    def _request_turns(self, now_ns: int) -> None:
        """Request turns for the idle instances, if there is a batch to be run now."""
        count, wake_ns = self.batcher.due(now_ns)
        if not count:
            self._withdraw_turns(wake_ns)
            return
        for instance in self.idle:
            self.gate.request(instance)

    def _withdraw_turns(self, wake_ns: int) -> None:
        """Withdraw the requests for turns: no batch is due, or none before ``wake_ns``."""
        for instance in self.idle:
            self.gate.withdraw(instance)
        if wake_ns:
            self._wake_at(wake_ns)

    def run_next(self, instance: ModelInstance) -> bool:
        """Run a batch on an instance whose turn it is; False when there is nothing to run, or not yet."""
        now_ns = monotonic_ns()
        if self._waiting_time is not None:
            self._waiting_time.look(now_ns)
        requests, wake_ns = self.batcher.take(now_ns)
        if not requests:
            # Not ``due`` here: a batch strategy may decide otherwise each time it is called.
            self._withdraw_turns(wake_ns)
            return False
        self._responder.statistics.pending -= len(requests)
        self.idle.remove(instance)
        # What is left may be enough for another idle instance.
        self._request_turns(now_ns)
        if finished := self._run(instance, Batch(requests), now_ns):
            self.freed(instance)
            self._responder.settle(finished)
        return True

    def _run(self, instance: ModelInstance, batch: Batch, now_ns: int) -> list[Batch] | None:
        """Hand a batch to an instance; errors and results as ``ModelInstance.run``."""
        if self.notes_batches:
            for request in batch.requests:
                request.joined(batch)
        prepare = instance.prepare
        if prepare is not None:
            prepare(batch, now_ns)
        return instance.run(batch)

    def finished_in_thread(self, instance: ModelInstance, batches: list[Batch]) -> None:
        """Batches are done; called in the thread of an instance."""
        try:
            self._loop.call_soon_threadsafe(self._finished, instance, batches)
        except RuntimeError:
            # The loop is closed: the server was aborted, and no caller waits for these responses.
            return

    def _finished(self, instance: ModelInstance, batches: list[Batch]) -> None:
        self.freed(instance)
        self._responder.settle(batches)

    def freed(self, instance: ModelInstance) -> None:
        """Take a batch for an instance that can run one, unless it is passive."""
        if self.gate.is_limited:
            self._freed_limited(instance)
        elif instance not in self.passive:
            self.idle.append(instance)
            self.turn()

    def _freed_limited(self, instance: ModelInstance) -> None:
        self.gate.release(instance)
        if instance not in self.passive:
            self.idle.append(instance)
            self.turn()
        # Also for a passive instance, which requests no turn: others may wait for what it held.
        self.gate.hand_out()

    def take_back(self, instance: ModelInstance) -> None:
        """Give an instance no batches for now: its worker died, and holds no resources."""
        if instance in self.idle:
            self.idle.remove(instance)
        self.gate.withdraw(instance)
        self.gate.release(instance)
        # Other instances may wait for what a dead worker held.
        self.gate.hand_out()

    # Events of instances beyond becoming idle, for a dispatcher that knows more than a queue

    def has_run(self, instance: ModelInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> bool:
        """Take the outputs of each request of a batch that ran, before their callers get them.

        Returns:
            Whether the instance gets its next batch before that; otherwise ``freed_late`` follows.
        """
        return True

    def freed_late(self, instance: ModelInstance) -> None:
        """An instance can take a batch after the loop's next look at what has come."""
        # Two turns, with a poll between them: the requests with which callers follow up their responses are then read.
        self._loop.call_soon(self._loop.call_soon, self._freed_late, instance)

    def _freed_late(self, instance: ModelInstance) -> None:
        # A worker that died meanwhile is freed when it is back.
        if instance.is_up:
            self.freed(instance)

    def take_response(self, request: InferRequest, response: Response) -> Response | None:
        """Take a response of an instance; returns the response to pass on, or None."""
        return response

    def end_batches(self, batches: list[Batch]) -> None:
        """Take batches that have run, with results or without, before their callers get responses."""

    def finished(self, instance: ModelInstance) -> None:
        """An instance can take a batch, while requests of the one before may be open."""
        self.freed(instance)

    def lost(self, instance: ModelInstance, forgets: bool) -> None:
        """An instance can run nothing for a while. With ``forgets`` its model has lost its state."""

    def found(self, instance: ModelInstance) -> None:
        """An instance can run batches again, if it could not."""

    def serve_by(self, fresh: list[ModelInstance]) -> None:
        """Serve by changed instances; ``fresh`` are the new ones that can take a batch now."""
        for instance in self.idle:
            if instance in self.passive:
                self.gate.withdraw(instance)
        self.idle[:] = [i for i in self.idle if i not in self.passive] + fresh
        if fresh:
            # Requests are queued again instead of failing at once.
            self.outage = None
        self.turn()

    def _wake_at(self, at_ns: int) -> None:
        if self._timer is None:
            self._timer = LoopTimer(self._loop, self.turn)
        self._timer.arm(at_ns)

    def close(self) -> None:
        """Release timers and instances; the last call."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        if self._waiting_time is not None:
            self._waiting_time.close()
            self._waiting_time = None
        self.idle.clear()
        self.gate.close()
        # The gate refers to this dispatcher: the cycle is cut by hand.
        self.gate = OPEN_GATE


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
