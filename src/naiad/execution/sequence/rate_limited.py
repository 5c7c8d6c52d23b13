"""Instances of models with sequences that run only when it is their turn (``--rate-limit=execution_count``).

A sequence stays with its instance, so whoever has the turn runs what its own sequences have waiting, or nothing.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns

from naiad.config.spec import ModelSpec, SequenceSpec
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.model.rate_limited import RateLimits, TurnTaker
from naiad.execution.model.responder import ModelResponder
from naiad.execution.sequence.dispatcher import SequenceDispatcher
from naiad.scheduling.rate_limiter import Contender


class LimitedSequenceDispatcher(TurnTaker, SequenceDispatcher):
    """Hands the steps of an instance's sequences to it when it is its turn among those of all models."""

    def __init__(
        self,
        spec: ModelSpec,
        sequence: SequenceSpec,
        loop: asyncio.AbstractEventLoop,
        answers: ModelResponder,
        limits: RateLimits,
    ) -> None:
        SequenceDispatcher.__init__(self, spec, sequence, loop, answers)
        self._share(limits)
        self._look_again_ns = 0

    def turn(self) -> None:
        """Ask for the turns of those idle instances that have something to run now."""
        self.turn_is_set = False
        self._look_again_ns = 0
        limiter = self._limits.limiter
        now_ns = monotonic_ns()
        for instance in self.idle:
            count, at_ns = self._strategy.due(self._number(instance), now_ns)
            if count:
                limiter.ask(self._contenders[instance])
            else:
                # It waits for further requests, or its callers have gone: nobody should wait behind it.
                limiter.withdraw(self._contenders[instance])
                self._look_again(at_ns)
        self._limits.hand_out()

    def _look_again(self, at_ns: int) -> None:
        """There is something to run at ``at_ns``, if that is not 0. One timer is for all instances."""
        if at_ns and not 0 < self._look_again_ns <= at_ns:
            self._look_again_ns = at_ns
            self._wake_at(at_ns)

    def run_next(self, contender: Contender) -> bool:
        """As ``TurnTaker.run_next``."""
        instance = self._instances[contender]
        now_ns = monotonic_ns()
        rows, at_ns = self._strategy.take(self._number(instance), now_ns)
        if not rows:
            self._look_again(at_ns)
            return False
        self.idle.remove(instance)
        if finished := self._run(instance, self._batch(rows, now_ns), now_ns):
            self.end_batches(finished)
            self.freed(instance)
            self._answers.settle(finished)
        return True

    def freed_soon(self, instance: ModelInstance) -> None:
        """As ``SequenceDispatcher.freed_soon``; what the instance held is free at once."""
        self._give_back(instance)
        super().freed_soon(instance)
        self._limits.hand_out()
