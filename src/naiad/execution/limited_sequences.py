"""Instances of models with sequences that run only when it is their turn (``--rate-limit=execution_count``).

A sequence stays with its instance, so whoever has the turn runs what its own sequences have waiting, or nothing.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns

from naiad.config.spec import ModelSpec, SequenceSpec
from naiad.execution.answers import ModelAnswers
from naiad.execution.instances import AnyInstance
from naiad.execution.rate_limits import RateLimits, TurnTaker
from naiad.execution.sequence_dispatch import SequenceDispatcher
from naiad.scheduling.limiter import Contender


class LimitedSequenceDispatcher(TurnTaker, SequenceDispatcher):
    """Hands the steps of an instance's sequences to it when it is its turn among those of all models."""

    def __init__(
        self,
        spec: ModelSpec,
        sequence: SequenceSpec,
        loop: asyncio.AbstractEventLoop,
        answers: ModelAnswers,
        limits: RateLimits,
    ) -> None:
        SequenceDispatcher.__init__(self, spec, sequence, loop, answers)
        self._share(limits)
        self._look_again_ns = 0

    def turn(self) -> None:
        """Ask for the turns of those idle instances that have something to run."""
        self.turn_is_set = False
        self._look_again_ns = 0
        limiter = self._limits.limiter
        for instance in self.idle:
            if self._strategy.is_ready(self._number(instance)):
                limiter.ask(self._contenders[instance])
            else:
                # Its callers may have gone meanwhile: nobody should wait behind it.
                limiter.withdraw(self._contenders[instance])
        self._limits.hand_out()

    def run_next(self, contender: Contender) -> bool:
        """As ``TurnTaker.run_next``."""
        instance = self._instances[contender]
        now_ns = monotonic_ns()
        rows, at_ns = self._strategy.take(self._number(instance), now_ns)
        if not rows:
            if at_ns:
                self._look_again_ns = min(self._look_again_ns or at_ns, at_ns)
                self._wake_at(self._look_again_ns)
            return False
        self.idle.remove(instance)
        if finished := self._run(instance, self._batch(rows, now_ns), now_ns):
            self.end_batches(finished)
            self.freed(instance)
            self._answers.settle(finished)
        return True

    def freed_soon(self, instance: AnyInstance) -> None:
        """As ``SequenceDispatcher.freed_soon``; what the instance held is free at once."""
        self._give_back(instance)
        super().freed_soon(instance)
        self._limits.hand_out()
