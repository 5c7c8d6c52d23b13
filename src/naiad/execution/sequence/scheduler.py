"""The scheduler of a model with sequences, which stay with their instances. Belongs to the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from time import monotonic_ns

from naiad.clock import NEVER
from naiad.config.spec import ModelSpec, SequenceSpec
from naiad.errors import CancelledError, InvalidArgumentError, NaiadError, RequestTimeoutError, UnavailableError
from naiad.eventloop.timer import LoopTimer
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.model.dispatcher import Dispatcher
from naiad.execution.model.rate_limits import RateLimits
from naiad.execution.model.responder import ModelResponder
from naiad.execution.sequence.step import SequenceRequest, SequenceRequestFactory
from naiad.request import SEQUENCE_START, Array, InferRequest, request_label
from naiad.scheduling.sequence.slots import Sequence
from naiad.scheduling.sequence.strategies import Row, SequenceBatcher
from naiad.worker.ipc.frames import FLAG_EMPTY, FLAG_ERROR, FLAG_FINAL, FLAG_RESCHEDULE

logger = logging.getLogger("naiad")


class SequenceScheduler:
    """Queues the requests of sequences, and has each run by the instance that its sequence stands in; a ``Scheduler``.

    Args:
        sequence: the section ``sequence_batching`` of the model.
        strategy: decides which requests an instance runs next.
        spec, loop, responder, limits: as for any scheduler.

    Attributes:
        dispatcher: hands the batches to idle instances.
        sequences: all sequences with their slots.
    """

    batches = True
    may_refuse = True

    def __init__(
        self,
        sequence: SequenceSpec,
        strategy: SequenceBatcher,
        spec: ModelSpec,
        loop: asyncio.AbstractEventLoop,
        responder: ModelResponder,
        limits: RateLimits | None = None,
    ) -> None:
        self._loop = loop
        self._responder = responder
        self.dispatcher = Dispatcher(loop, responder, limits, self.turn, self.run_next, self.end_batches)
        # The same list all the time.
        self._idle = self.dispatcher.idle
        self._name = spec.name
        self._iterative = sequence.iterative
        self._idle_ns = sequence.max_idle_ns
        self._strategy = strategy
        self.sequences = strategy.sequences
        self._maker = SequenceRequestFactory(spec, sequence)
        self._steps: dict[InferRequest, SequenceRequest] = {}
        self._numbers: dict[ModelInstance, int] = {}
        self._suspended: set[ModelInstance] = set()
        self._settler: LoopTimer | None = None
        self._settle_ns = NEVER
        # When a turn is requested once more, 0 for no such time. One timer is for all instances.
        self._look_again_ns = 0

    @property
    def is_stateful(self) -> bool:
        """The model has implicit state."""
        return bool(self._maker.states)

    @property
    def has_live(self) -> bool:
        """Whether there are live sequences."""
        return self.sequences.has_live

    # Requests

    def push(self, request: InferRequest) -> None:
        """Queue a request at the end of its sequence.

        Raises:
            InvalidArgumentError: it does not begin a sequence, and there is none with its id.
        """
        step = self._maker.make(request)
        if request.options.flags & SEQUENCE_START:
            self._warn_of_restart(request)
        sequence = step.sequence = self.sequences.push(step, self._name)
        self._steps[request] = step
        if sequence.slot is None:
            # The time that it may wait for a slot is limited.
            self._watch()
        else:
            self._place(sequence)

    def _warn_of_restart(self, request: InferRequest) -> None:
        options = request.options
        if not self._iterative and self.sequences.is_live(options.correlation_id):
            logger.warning(
                "sequence %s for model '%s' has a conflict. The previous sequence did not end before this sequence "
                "start. Previous sequence will be terminated early.",
                options.correlation_id,
                self._name,
            )

    def _place(self, sequence: Sequence) -> None:
        """Let the next request of ``sequence`` run, if it has one, stands in a slot, and none runs."""
        if sequence.slot is None or sequence.running is not None or not sequence.waiting:
            return
        step = sequence.waiting[0]
        if isinstance(step, SequenceRequest) and not step.is_made:
            self._maker.complete(step)
        self._strategy.placed(sequence)

    def requeue(self, request: InferRequest) -> None:
        """Run a request once more that the model released for that, where its scheduling is iterative."""
        if not isinstance(request, SequenceRequest):
            return
        if not self._iterative:
            self.end(request)
            self._responder.fail(
                request,
                InvalidArgumentError(
                    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not "
                    "configured to handle such a flag."
                ),
            )
            return
        self._responder.statistics.pending += 1
        request.is_made = False
        request.is_again = True
        self.sequences.take_back(request.sequence)
        self._place(request.sequence)
        self.dispatcher.wake_later()

    def as_run(self, request: InferRequest) -> InferRequest:
        return self._steps.get(request, request)

    def cancel(self, request: InferRequest) -> InferRequest | None:
        """Give a request up whose caller has gone. With it goes what waits of its sequence, and the sequence ends."""
        step = self._steps.get(request)
        if step is None:
            return None
        sequence = step.sequence
        if not self._iterative or sequence.running is step:
            self._strategy.discard(sequence)
        if sequence.running is step:
            return step
        error = CancelledError(f"{request_label(request.id)}the request was cancelled by its caller")
        if self._iterative:
            # The requests behind it are no part of it, but have the same id.
            following = self.sequences.withdraw(step, monotonic_ns())
            self._fail((step,), error)
            for other in (sequence, following):
                if other is not None:
                    self._place(other)
        else:
            self._end_sequence(sequence, error)
        self._responder.notify_drained()
        self.dispatcher.wake_later()
        return None

    def fail_all(self, error: NaiadError) -> None:
        """Respond to every request that waits with ``error``, and end all sequences."""
        self._fail(self._strategy.drain(), error)
        self._responder.notify_drained()

    def _end_sequence(self, sequence: Sequence, error: NaiadError) -> None:
        """End a sequence from outside; its waiting requests fail with ``error``."""
        self._strategy.discard(sequence)
        given_up, following = self.sequences.end(sequence, monotonic_ns())
        self._fail(given_up, error)
        if following is not None:
            self._place(following)

    def _fail(self, steps: Iterable[InferRequest], error: NaiadError) -> None:
        failed = [step for step in steps if isinstance(step, SequenceRequest)]
        for step in failed:
            # All, before any caller gets its response: that caller may leave then, and cancel others of these.
            self._steps.pop(step.original, None)
            self._responder.statistics.pending -= 1
        for step in failed:
            self._responder.fail(step, error)

    # Batches

    def wake(self, request: InferRequest) -> None:
        """Set a turn for the end of the loop's, unless no further request can join the batch until then."""
        begins = self._iterative or request.options.flags & SEQUENCE_START
        if begins or self.sequences.has_idle or not self._idle[0].sends_requests:
            self.dispatcher.turn_is_set = True
            self._loop.call_soon(self.turn)
        else:
            # Every sequence has its request here, so nothing that comes later in this turn could run with it.
            self.turn()

    def has_run(self, instance: ModelInstance, batch: Batch, outputs: Items[Mapping[str, Array]]) -> bool:
        """End the steps before their responses, so that the next steps can be part of the instance's next batch."""
        count = len(batch.callers)
        for request, arrays in zip(batch.requests, outputs, strict=True):
            if isinstance(request, SequenceRequest):
                if self.is_stateful:
                    self.keep_states_of(batch, request, arrays)
                self.end(request)
        # Where the callers' next requests would fill the batch, they get their responses first.
        return count < 2 or not self._strategy.waits_for_more(self._number(instance), count)

    def take_response(self, request: InferRequest, response: Response) -> Response | None:
        if not isinstance(request, SequenceRequest):
            # An empty row has no caller.
            return None
        if self.is_stateful and response.outputs is not None:
            wrong = self.keep_states(request, response.outputs)
            if wrong is not None:
                response = Response(response.request, None, wrong, response.flags | FLAG_ERROR | FLAG_EMPTY)
        if response.flags & FLAG_FINAL and not response.flags & FLAG_RESCHEDULE:
            self.end(request)
            self.dispatcher.wake_later()
        return response

    def finished(self, instance: ModelInstance) -> None:
        # The responses that came with this are taken by then, so that the next requests can be part of the batch.
        self.dispatcher.freed_for_next_turn(instance)

    def turn(self) -> None:
        """Hand batches out to the idle instances that have something to run."""
        dispatcher = self.dispatcher
        dispatcher.turn_is_set = False
        if dispatcher.gate.is_limited:
            self._request_turns(monotonic_ns())
            dispatcher.gate.hand_out()
            return
        if not len(self.sequences):
            # As after most batches with few callers: no instance has to look at its slots.
            return
        wake_ns = 0
        waiting = list(self._idle)
        while waiting:
            instance = waiting.pop()
            if instance not in self._idle:
                # It died, or got a batch, while other requests got their responses.
                continue
            now_ns = monotonic_ns()
            rows, at_ns = self._strategy.take(self._number(instance), now_ns)
            if not rows:
                wake_ns = min(wake_ns or at_ns, at_ns or wake_ns)
                continue
            self._idle.remove(instance)
            finished = dispatcher.run(instance, self._batch(rows, now_ns), now_ns)
            if finished:
                self.end_batches(finished)
                # Idle before the responses, which may bring the next requests of its sequences.
                self._idle.append(instance)
                # The next steps of the sequences may run on any instance that was looked at before.
                waiting = list(self._idle)
                self._responder.settle(finished)
        if wake_ns:
            dispatcher.wake_at(wake_ns)

    def _request_turns(self, now_ns: int) -> None:
        """Request turns for the idle instances whose sequences have something to run now."""
        self._look_again_ns = 0
        gate = self.dispatcher.gate
        for instance in self._idle:
            count, at_ns = self._strategy.due(self._number(instance), now_ns)
            if count:
                gate.request(instance)
            else:
                # It waits for further requests, or its callers have gone: no instance should wait behind it.
                gate.withdraw(instance)
                self._look_again(at_ns)

    def _look_again(self, at_ns: int) -> None:
        """Request turns once more at ``at_ns``, unless that is 0."""
        if at_ns and not 0 < self._look_again_ns <= at_ns:
            self._look_again_ns = at_ns
            self.dispatcher.wake_at(at_ns)

    def run_next(self, instance: ModelInstance) -> bool:
        """Run the next requests of an instance's own sequences; False when there are none, or not yet."""
        now_ns = monotonic_ns()
        rows, at_ns = self._strategy.take(self._number(instance), now_ns)
        if not rows:
            self._look_again(at_ns)
            return False
        self._idle.remove(instance)
        if finished := self.dispatcher.run(instance, self._batch(rows, now_ns), now_ns):
            self.end_batches(finished)
            self.dispatcher.freed(instance)
            self._responder.settle(finished)
        return True

    def _batch(self, rows: list[Row], now_ns: int) -> Batch:
        steps = [row.request for row in rows if row.request is not None]
        self._responder.statistics.pending -= len(steps)
        first = steps[0]
        if len(steps) == len(rows) or not isinstance(first, SequenceRequest):
            return Batch(steps, steps)
        # The same empty row stands in all empty slots.
        empty = self._maker.empty(first, now_ns)
        return Batch([empty if row.request is None else row.request for row in rows], steps)

    def _number(self, instance: ModelInstance) -> int:
        return self._numbers.setdefault(instance, len(self._numbers))

    # Requests that have run

    def end_batches(self, batches: list[Batch]) -> None:
        """Keep the states of finished batches, and end their steps."""
        for batch in batches:
            is_stateful = self.is_stateful and batch.error is None
            for row, step in enumerate(batch.requests):
                if not isinstance(step, SequenceRequest):
                    continue
                if is_stateful:
                    results = batch.results
                    if len(batch.requests) > 1:
                        results = {name: array[row : row + 1] for name, array in results.items()}
                    self.keep_states_of(batch, step, results)
                self.end(step)

    def keep_states_of(self, batch: Batch, step: SequenceRequest, outputs: Mapping[str, Array]) -> None:
        """``keep_states`` for a step of a batch that succeeded: a wrong state becomes its response."""
        wrong = self.keep_states(step, outputs)
        if wrong is not None:
            step.failure = wrong
            # Counted here: the batch counts the others as successful.
            batch.drop_caller(step)
            self._responder.count_failure(step, wrong)

    def keep_states(self, step: SequenceRequest, outputs: Mapping[str, Array]) -> NaiadError | None:
        """Keep the states that a model returned for the next request of a sequence; the error if one is wrong."""
        memory = step.sequence_memory
        try:
            memory.states = self._maker.states.following(memory.states, outputs)
        except NaiadError as error:
            return error
        return None

    def end(self, step: SequenceRequest) -> None:
        """End a step, whose response follows: the next of its sequence may run."""
        if self._steps.pop(step.original, None) is None:
            return
        sequence = step.sequence
        if self._iterative and not sequence.waiting:
            # An iterative sequence is one request with its reschedules, and ends with them.
            self.sequences.end(sequence, 0)
        now_ns = monotonic_ns()
        following = self.sequences.finish(sequence, now_ns)
        if sequence.waiting:
            self._place(sequence)
        if following is not None:
            self._place(following)
        if not sequence.waiting and not NEVER < self._settle_ns <= now_ns + self._idle_ns:
            # Otherwise the timer fires before this sequence has been idle for too long.
            self._watch()

    # Time

    def _watch(self) -> None:
        """Arm the timer for when a sequence will have been idle, or waited for a slot, for too long."""
        due_ns = self.sequences.next_ns
        if due_ns == NEVER or (self._settle_ns != NEVER and self._settle_ns <= due_ns):
            return
        if self._settler is None:
            self._settler = LoopTimer(self._loop, self._settle)
        self._settle_ns = due_ns
        self._settler.arm(due_ns)

    def _settle(self) -> None:
        self._settle_ns = NEVER
        refused, placed = self.sequences.settle(monotonic_ns())
        self._fail(refused, RequestTimeoutError("timeout of the corresponding sequence has been expired"))
        for sequence in placed:
            self._place(sequence)
        # Idle sequences that have ended may be what the version's end waits for.
        self._responder.notify_drained()
        self.dispatcher.wake_later()
        self._watch()

    # Instances that come and go

    def lost(self, instance: ModelInstance, forgets: bool) -> None:
        """Place no sequence on an instance; with ``forgets`` end the sequences in its slots."""
        if instance in self.dispatcher.passive:
            return
        number = self._number(instance)
        self._suspended.add(instance)
        self.sequences.suspend(number)
        if not forgets:
            return
        for sequence in self.sequences.row(number):
            if sequence is not None:
                self._end_sequence(
                    sequence,
                    UnavailableError(
                        f"sequence {sequence.correlation_id} of model '{self._name}' has ended: instance "
                        f"'{instance.name}', which had its state, is gone. Start the sequence again"
                    ),
                )
        self._responder.notify_drained()

    def found(self, instance: ModelInstance) -> None:
        if instance in self._suspended:
            self._suspended.remove(instance)
            for sequence in self.sequences.resume(self._number(instance)):
                self._place(sequence)

    def limit_batches(self, max_rows: int, max_queue_delay_ns: int) -> None:
        # Slots, not a queue, decide on the batches of sequences.
        return

    def close(self) -> None:
        """Release timers and instances; the last call."""
        if self._settler is not None:
            self._settler.close()
            self._settler = None
        self._steps.clear()
        self._numbers.clear()
        self._suspended.clear()
        self.dispatcher.close()
