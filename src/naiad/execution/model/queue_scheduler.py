"""The scheduler of a model without sequences: one queue, out of which all idle instances take batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns
from typing import Final

from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError, QueueFullError, RequestTimeoutError
from naiad.eventloop.end_of_turn import end_of_turn_queue
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.gather import SMALL_BYTES
from naiad.execution.batching.response import Response
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.model.custom_batching import CustomBatching
from naiad.execution.model.dispatcher import Dispatcher
from naiad.execution.model.queue_timeout import WaitingTime
from naiad.execution.model.rate_limits import RateLimits
from naiad.execution.model.responder import ModelResponder
from naiad.request import Array, InferRequest
from naiad.scheduling.batcher.dynamic import DynamicBatcher, SingleBatcher
from naiad.scheduling.batcher.limited import BatchLimit, ByteLimit, LimitedBatcher
from naiad.scheduling.queue.policy import PolicyQueue
from naiad.scheduling.testing import delayed

LONGEST_TURN_NS: Final = 2_000_000
"""How long batches may run on the event loop one behind the other before it looks at what else has come."""
_LONG_RUN: Final = 8
"""Runs that take this many times the queue delay are long."""


class QueueScheduler:
    """Queues the requests of a model version and has batches of them run; a ``Scheduler``.

    Attributes:
        batcher: the queue; its requests lie in ``policies`` where the model has queue policies.
        batches: whether a request waits for others that may join its batch.
        dispatcher: hands the batches to idle instances.
    """

    has_live = False

    def __init__(
        self,
        spec: ModelSpec,
        loop: asyncio.AbstractEventLoop,
        responder: ModelResponder,
        limits: RateLimits | None = None,
        strategy: CustomBatching | None = None,
    ) -> None:
        self._loop = loop
        self._end_of_turn = end_of_turn_queue(loop)
        self._responder = responder
        self.policies = PolicyQueue(spec.queue) if spec.queue is not None else None
        self._waiting_time: WaitingTime | None = None
        if self.policies is not None:
            self._waiting_time = WaitingTime(self.policies, loop, self._refuse_late, self._due)
        self._dynamic = _make_dynamic(spec, self.policies, strategy)
        self.batcher = SingleBatcher(self.policies) if self._dynamic is None else delayed(self._dynamic)
        self.batches = self._dynamic is not None
        runs_ahead = self._dynamic is None and self.policies is None
        self.dispatcher = Dispatcher(loop, responder, limits, self.turn, self.run_next, runs_ahead=runs_ahead)
        # For ``_awaits_callers``: the time of a run beside which a wait costs little, and the rows of a full batch.
        self._long_ns = self._largest = 0
        if spec.batching is not None:
            self._await_callers(max(spec.batching.preferred_batch_sizes, default=0), spec.batching.max_queue_delay_ns)
        # The same list all the time.
        self._idle = self.dispatcher.idle

    def _await_callers(self, largest: int, delay_ns: int) -> None:
        self._largest = largest
        self._long_ns = 0 if self.dispatcher.gate.is_limited else delay_ns * _LONG_RUN
        self.dispatcher.await_callers(self._awaits_callers_of if self._long_ns else None)

    def limit_batches(self, max_rows: int, max_queue_delay_ns: int) -> None:
        if self._dynamic is None:
            return
        self._dynamic.limit(max_rows, max_queue_delay_ns)
        self._await_callers(max_rows, max_queue_delay_ns)
        # What waits may be a batch by now.
        self.dispatcher.wake_later()

    @property
    def may_refuse(self) -> bool:
        """Whether queue policies may refuse a request."""
        return self.policies is not None

    # Requests

    @property
    def push(self) -> Callable[[InferRequest], object]:
        """Queues a request: the batcher's own function, unless there are policies."""
        return self.batcher.push if self.policies is None else self._push_by_policy

    def _push_by_policy(self, request: InferRequest) -> None:
        try:
            self.batcher.push(request)
        except QueueFullError as error:
            if not self._fits_after_turn(request):
                self._responder.statistics.count_failure(error.reason, monotonic_ns() - request.received_ns)
                raise self._responder.budget.refuse("queue", str(error)) from None
        if self._waiting_time is not None:
            self._waiting_time.watch()

    def _fits_after_turn(self, request: InferRequest) -> bool:
        """Queue a request that found the queue full, if idle instances take what waits for the end of the loop's turn.

        A burst that arrives in one turn may be longer than the queue while nothing runs.
        """
        if not (self._idle and self.dispatcher.turn_is_set):
            return False
        self.turn()
        try:
            self.batcher.push(request)
        except QueueFullError:
            return False
        return True

    def requeue(self, request: InferRequest) -> None:
        self._responder.statistics.pending += 1
        if self.policies is None:
            self.batcher.push(request)
        else:
            # It was admitted before, so the limits of the policies do not apply.
            self.policies.append_again(request)
        self.dispatcher.wake_later()

    def wake(self, request: InferRequest) -> None:
        if self.batches:
            self.dispatcher.turn_is_set = True
            self._end_of_turn.call(self._loop, self.turn)
        else:
            # Nothing that comes later in this turn could run with it, and its bytes are still in the processor's cache.
            self.turn()

    def cancel(self, request: InferRequest) -> InferRequest | None:
        if not self.batcher.discard(request) and not self.dispatcher.drop(request):
            return request
        self._responder.statistics.pending -= 1
        if self.dispatcher.gate.is_limited:
            # The rest may have to wait for others. Many may leave together, and one look is enough.
            self.dispatcher.wake_later()
        self._responder.fail_cancelled(request)
        return None

    def as_run(self, request: InferRequest) -> InferRequest:
        return request

    def fail_all(self, error: NaiadError) -> None:
        for queued in self.batcher.drain():
            for request in queued.singles():
                self._responder.statistics.pending -= 1
                self._responder.fail(request, error)
        self._responder.notify_drained()

    def _refuse_late(self, request: InferRequest) -> None:
        self._responder.statistics.pending -= 1
        self._responder.fail(request, RequestTimeoutError("Request timeout expired"))
        self._responder.notify_drained()

    def _due(self) -> None:
        if self._idle and not self.dispatcher.turn_is_set:
            self.turn()

    # Batches

    def turn(self) -> None:
        """End of a loop turn in which requests came or an instance became idle: hand batches out."""
        dispatcher = self.dispatcher
        dispatcher.turn_is_set = False
        now_ns = begun_ns = monotonic_ns()
        if self._waiting_time is not None:
            self._waiting_time.look(now_ns)
        if dispatcher.gate.is_limited:
            self._request_turns(now_ns)
            dispatcher.gate.hand_out()
            return
        idle = self._idle
        while idle:
            requests, wake_ns = self.batcher.take(now_ns)
            if not requests:
                if wake_ns:
                    dispatcher.wake_at(wake_ns)
                return
            instance = idle.pop()
            batch = Batch(requests)
            # It is there once for each batch that it can take: fewer times while it runs one.
            if instance is dispatcher.ahead.instance and len(idle) < dispatcher.ahead.places:
                if not (refused := dispatcher.run_ahead(instance, batch, now_ns)):
                    continue
                self._responder.statistics.pending -= 1
                idle.append(instance)
                self._responder.settle(refused)
                continue
            self._responder.statistics.pending -= batch.count
            if self.batches:
                self._count_left(batch)
            if finished := dispatcher.run(instance, batch, now_ns):
                # Idle before the responses: a caller's next request may come within them.
                idle.append(instance)
                self._responder.settle(finished)
            # An inline instance has used up time, and deadlines may have passed.
            now_ns = monotonic_ns()
            if now_ns - begun_ns > LONGEST_TURN_NS:
                # A long queue must not hold up what else the loop has to do.
                dispatcher.wake_later()
                return

    def _count_left(self, batch: Batch) -> None:
        """Count a batch by why it left the queue."""
        reason = batch.reason = self.batcher.reason
        self._responder.statistics.left[reason][batch.rows] += 1

    def _request_turns(self, now_ns: int) -> None:
        """Request turns for the idle instances, if there is a batch to be run now."""
        count, wake_ns = self.batcher.due(now_ns)
        if not count:
            self._withdraw_turns(wake_ns)
            return
        for instance in self._idle:
            self.dispatcher.gate.request(instance)

    def _withdraw_turns(self, wake_ns: int) -> None:
        """Withdraw the requests for turns: no batch is due, or none before ``wake_ns``."""
        for instance in self._idle:
            self.dispatcher.gate.withdraw(instance)
        if wake_ns:
            self.dispatcher.wake_at(wake_ns)

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
        batch = Batch(requests)
        self._responder.statistics.pending -= batch.count
        self._idle.remove(instance)
        # What is left may be enough for another idle instance.
        if self.batches:
            self._count_left(batch)
        self._request_turns(now_ns)
        if finished := self.dispatcher.run(instance, batch, now_ns):
            self.dispatcher.freed(instance)
            self._responder.settle(finished)
        return True

    def has_run(self, instance: ModelInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> bool:
        return not (self._long_ns and self._awaits_callers(batch, outputs))

    def _awaits_callers_of(self, batches: list[Batch]) -> bool:
        last = batches[-1]
        return self._awaits_callers(last, (last.results,))

    def _awaits_callers(self, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> bool:
        """Whether the next batch waits for the requests with which the callers of this one follow up their responses.

        Otherwise callers that send one request after another fall into two groups, and each runs while the other waits:
        every batch has half of what it could have. The delay of the configuration says that requests may wait for
        others, and it takes no longer than to respond and to look at what has come.
        """
        return (
            0 < len(self.batcher) < self._largest
            # Else the next batch may be full as it is, and small responses are sent in no time.
            and batch.rows == batch.count
            and batch.infer_ns - batch.input_ns > self._long_ns
            and sum(array.nbytes for arrays in outputs for array in arrays.values()) <= SMALL_BYTES
        )

    # Nothing is known here of what requests leave behind

    def take_response(self, request: InferRequest, response: Response) -> Response | None:
        return response

    def end_batches(self, batches: list[Batch]) -> None:
        return

    def finished(self, instance: ModelInstance) -> None:
        self.dispatcher.freed(instance)

    def lost(self, instance: ModelInstance, forgets: bool) -> None:
        return

    def found(self, instance: ModelInstance) -> None:
        return

    def close(self) -> None:
        """Release timers and instances; the last call."""
        if self._waiting_time is not None:
            self._waiting_time.close()
            self._waiting_time = None
        self.dispatcher.close()


def _make_dynamic(spec: ModelSpec, queue: PolicyQueue | None, strategy: CustomBatching | None) -> DynamicBatcher | None:
    """What puts requests together into batches; None for a model whose requests run one by one."""
    if spec.batching is None or spec.max_batch_size < 1:
        return None
    limits: list[BatchLimit] = []
    if spec.max_batch_bytes:
        limits.append(ByteLimit(spec.max_batch_bytes, {} if spec.assembly is None else spec.assembly.pads))
    if strategy is not None:
        limits.append(strategy)
    if limits:
        return LimitedBatcher(spec.batching, spec.max_batch_size, queue, limits)
    return DynamicBatcher(spec.batching, spec.max_batch_size, queue)
