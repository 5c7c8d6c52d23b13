"""The dispatcher of one model version: knows which instances are idle and hands batches to them.

Belongs to the event loop, except where a method says otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from naiad.errors import UnavailableError
from naiad.eventloop.timer import LoopTimer
from naiad.execution.batching.batch import Batch
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.model.batch_log import log_batch
from naiad.execution.model.group_change import InstancePosition
from naiad.execution.model.rate_limits import OPEN_GATE, RateLimitGate, RateLimits
from naiad.execution.model.responder import ModelResponder
from naiad.execution.model.run_ahead import RunAhead
from naiad.request import InferRequest


class Dispatcher:
    """Hands batches to the idle instances of a model version. The scheduler that owns it decides which and when.

    Args:
        loop: the event loop.
        responder: responds to the requests of batches that have run.
        limits: the resources that the instances share with those of other models; None without rate limits.
        turn: hands batches out to ``idle``; called when an instance has become idle, or time has passed.
        run_next: hands a batch to an instance whose turn it is; False when there is nothing to run, or not yet.
        end_batches: takes batches that have run before the instance counts as idle; None for a scheduler that does
            not need them.
        awaits_callers: whether the callers of batches that have run get their responses before the instance gets its
            next batch; None where they never do.
        runs_ahead: an instance that serves alone may take further batches while it runs one. For a scheduler whose
            batches cannot grow, and that begins with them in the order of its queue.

    Attributes:
        idle: instances that can take a batch; always the same list.
        ahead: the further places in ``idle`` of an instance that serves alone.
        passive: instances that get no batches, as in ``InstanceSet``.
        turn_is_set: whether ``turn`` will be called at the end of the loop's turn.
        outage: why no instance will be there for a while.
        gate: decides when an idle instance may run.
        notes_batches: requests note the batch that they run in, as some are steps of ensembles.
        logged_as: the name of the model, where ``notes_batches`` is to log the batches as well; "" where it is not.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        responder: ModelResponder,
        limits: RateLimits | None,
        turn: Callable[[], None],
        run_next: Callable[[ModelInstance], bool],
        end_batches: Callable[[list[Batch]], None] | None = None,
        awaits_callers: Callable[[list[Batch]], bool] | None = None,
        runs_ahead: bool = False,
    ) -> None:
        self._loop = loop
        self._responder = responder
        self._turn = turn
        self._end_batches = end_batches
        self._awaits_callers = awaits_callers
        self.idle: list[ModelInstance] = []
        self.passive: set[ModelInstance] = set()
        self.gate = OPEN_GATE if limits is None else RateLimitGate(limits, loop, run_next)
        self.turn_is_set = False
        self.outage: UnavailableError | None = None
        self.notes_batches = False
        self.logged_as = ""
        self.ahead = RunAhead(self.idle, runs_ahead and not self.gate.is_limited)
        # All that were registered, in their order.
        self._registered: dict[ModelInstance, None] = {}
        self._timer: LoopTimer | None = None

    def await_callers(self, awaits_callers: Callable[[list[Batch]], bool] | None) -> None:
        """Decide by ``awaits_callers`` from now on; as the argument of that name."""
        self._awaits_callers = awaits_callers

    # Instances that come and go

    def begin(self, places: Mapping[ModelInstance, InstancePosition]) -> None:
        """Register the first instances that serve; called in a loading thread, before any starts.

        Raises:
            NaiadError: an instance could never run.
        """
        self.gate.begin(places)
        # A worker that dies while other instances start is removed from the list again.
        self.idle[:] = places
        self._registered.update(dict.fromkeys(places))
        self.ahead.choose(self._registered, self.passive)

    def join(self, places: Mapping[ModelInstance, InstancePosition]) -> None:
        """Register further instances, which serve from ``serve_by`` on; errors as ``begin``."""
        self.gate.join(places)
        self._registered.update(dict.fromkeys(places))

    def leave(self, instances: Sequence[ModelInstance]) -> None:
        """Forget instances that have ended, or never began."""
        self.gate.leave(instances)
        self.ahead.forget(instances)
        for instance in instances:
            self._registered.pop(instance, None)

    def serve_by(self, fresh: list[ModelInstance]) -> None:
        """Serve by changed instances; ``fresh`` are the new ones that can take a batch now."""
        for instance in self.idle:
            if instance in self.passive:
                self.gate.withdraw(instance)
        self.idle[:] = [i for i in self.idle if i not in self.passive] + fresh
        if fresh:
            # Requests are queued again instead of failing at once.
            self.outage = None
        self.ahead.choose(self._registered, self.passive)
        self._turn()

    def is_idle(self, instance: ModelInstance) -> bool:
        """Whether an instance that serves runs nothing."""
        return self.idle.count(instance) == (1 + self.ahead.places if instance is self.ahead.instance else 1)

    def take_back(self, instance: ModelInstance) -> Sequence[InferRequest]:
        """Give an instance no batches for now: its worker died, and holds no resources.

        Returns the requests that waited in it, which are no longer pending.
        """
        while instance in self.idle:
            self.idle.remove(instance)
        waited = self.ahead.lose(instance)
        self._responder.statistics.pending -= len(waited)
        self.gate.withdraw(instance)
        self.gate.release(instance)
        # Other instances may wait for what a dead worker held.
        self.gate.hand_out()
        return [request for batch in waited for request in batch.requests]

    # Turns

    def wake_later(self) -> None:
        """Look in the loop's next turn whether an idle instance can run after some change."""
        if self.idle and not self.turn_is_set:
            self.turn_is_set = True
            self._loop.call_soon(self._turn)

    def wake_at(self, at_ns: int) -> None:
        """Look again at a monotonic time; one timer is for all instances."""
        if self._timer is None:
            self._timer = LoopTimer(self._loop, self._turn)
        self._timer.arm(at_ns)

    # Batches

    def run(self, instance: ModelInstance, batch: Batch, now_ns: int) -> list[Batch] | None:
        """Hand a batch to an instance; errors and results as ``ModelInstance.run``."""
        if self.notes_batches:
            self._note(batch)
        prepare = instance.prepare
        if prepare is not None:
            prepare(batch, now_ns)
        return instance.run(batch)

    def run_ahead(self, instance: ModelInstance, batch: Batch, now_ns: int) -> list[Batch] | None:
        """Hand a batch to the instance that runs ahead while it runs another one; returns as ``run``.

        It counts as pending until it begins.
        """
        if self.notes_batches:
            self._note(batch)
        if instance.prepare is not None:
            instance.prepare(batch, now_ns)
        return self.ahead.run(instance, batch)

    def drop(self, request: InferRequest) -> bool:
        """Take a request back that waits in an instance; False when it does not, or has begun."""
        return self.ahead.drop(request)

    def _vacated(self, instance: ModelInstance) -> bool:
        """Note that an instance has one batch less; whether it can take another one."""
        if instance in self.passive:
            return False
        if self.ahead.owing and self.ahead.withhold(instance):
            return False
        self.idle.append(instance)
        if self.ahead.lost and instance in self.ahead.lost:
            self.ahead.lost.remove(instance)
            self.ahead.choose(self._registered, self.passive)
        return True

    def _note(self, batch: Batch) -> None:
        for request in batch.requests:
            request.joined(batch)
        if self.logged_as:
            log_batch(self.logged_as, batch)

    def finished_in_thread(self, instance: ModelInstance, batches: list[Batch]) -> None:
        """Batches are done; called in the thread of an instance."""
        try:
            self._loop.call_soon_threadsafe(self._finished, instance, batches)
        except RuntimeError:
            # The loop is closed: the server was aborted, and no caller waits for these responses.
            return

    def _finished(self, instance: ModelInstance, batches: list[Batch]) -> None:
        if self._end_batches is not None:
            self._end_batches(batches)
        self.settle(instance, batches)

    def settle(self, instance: ModelInstance, batches: list[Batch]) -> None:
        """Take the next batch for an instance and respond to the batches that it has run, in the order that the
        scheduler wants."""
        if self._awaits_callers is not None and self._awaits_callers(batches):
            self._responder.settle(batches)
            self.freed_late(instance)
            return
        self.freed(instance)
        self._responder.settle(batches)

    def freed(self, instance: ModelInstance) -> None:
        """Take a batch for an instance that can run one, unless it is passive."""
        if self.ahead.waiting and instance in self.ahead.waiting:
            begins, back = self.ahead.next_begins(instance)
            self._responder.statistics.pending -= begins
            for _ in range(back):
                self._vacated(instance)
        if self.gate.is_limited:
            self._freed_limited(instance)
        elif self._vacated(instance):
            self._turn()

    def _freed_limited(self, instance: ModelInstance) -> None:
        self.gate.release(instance)
        if instance not in self.passive:
            self.idle.append(instance)
            self._turn()
        # Also for a passive instance, which requests no turn: others may wait for what it held.
        self.gate.hand_out()

    def freed_for_next_turn(self, instance: ModelInstance) -> None:
        """Take a batch for an instance in the loop's next turn: what comes until then can be part of it."""
        if instance not in self.passive:
            self.idle.append(instance)
        if self.gate.is_limited:
            self.gate.release(instance)
            # Its next turn is requested when the callers' next requests are there.
            self.gate.hand_out()
        self.wake_later()

    def freed_late(self, instance: ModelInstance) -> None:
        """Take a batch for an instance after the loop's next look at what has come."""
        # Two turns, with a poll between them: the requests with which callers follow up their responses are then read.
        self._loop.call_soon(self._loop.call_soon, self._freed_late, instance)

    def _freed_late(self, instance: ModelInstance) -> None:
        # A worker that died meanwhile is freed when it is back.
        if instance.is_up:
            self.freed(instance)

    def close(self) -> None:
        """Release timers and instances; the last call."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        self.idle.clear()
        self._registered.clear()
        self.ahead.close()
        self.gate.close()
        # The gate and the functions refer to the scheduler that owns this: the cycle is cut by hand.
        self.gate = OPEN_GATE
        self._turn = _nothing
        self._end_batches = None
        self._awaits_callers = None


def _nothing() -> None:
    """Stands in for ``turn`` once the scheduler is closed: a thread that was not waited for may still finish."""
