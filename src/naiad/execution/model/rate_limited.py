"""Instances that run only when it is their turn and their resources are free (``--rate-limit=execution_count``).

Who is next decides ``scheduling/rate_limiter.py``. Until then requests stay in the queues of their models: they can be
cancelled, their deadlines hold, and a batch is put together when its instance may run it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from time import monotonic_ns
from typing import ClassVar, Final

from naiad.config.spec import ModelSpec
from naiad.errors import ModelLoadError
from naiad.execution.batching.batch import Batch
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.model.custom_batching import CustomBatching
from naiad.execution.model.dispatcher import Dispatcher
from naiad.execution.model.group_change import InstancePosition
from naiad.execution.model.responder import ModelResponder
from naiad.request import InferRequest
from naiad.scheduling.rate_limiter import GLOBAL, Contender, RateLimiter, Resource, ResourceLimit

logger = logging.getLogger("naiad")

LOOP_S: Final = 30.0
"""How long a loading thread waits for the event loop to take its instances in."""


class RateLimits:
    """The resources that the instances of all models share. The event loop alone uses it."""

    def __init__(self, limits: Sequence[ResourceLimit] = ()) -> None:
        self.limiter = RateLimiter(limits)
        self._homes: dict[Contender, TurnTaker] = {}
        self._is_handing_out = False

    def join(self, contenders: Iterable[Contender], home: TurnTaker) -> None:
        """Take instances of one model in, all or none; errors as ``RateLimiter.join``."""
        found = list(contenders)
        self.limiter.join(found)
        self._homes.update(dict.fromkeys(found, home))

    def leave(self, contender: Contender) -> None:
        """Forget an instance; what it held is free for others."""
        self.limiter.leave(contender)
        self._homes.pop(contender, None)

    def hand_out(self) -> None:
        """Let everyone run whose turn it is."""
        if self._is_handing_out:
            # Called from what runs below, which looks again anyway.
            return
        self._is_handing_out = True
        try:
            while (contender := self.limiter.next()) is not None:
                self._give_turn(contender)
        finally:
            self._is_handing_out = False

    def _give_turn(self, contender: Contender) -> None:
        was_used = False
        try:
            was_used = self._homes[contender].run_next(contender)
        except Exception:
            # One model's fault must not keep the others from their turns.
            logger.exception("an instance could not be given its turn")
        if not was_used:
            self.limiter.release(contender, was_used=False)


class TurnTaker(Dispatcher, ABC):
    """A dispatcher whose instances hold resources while they run; what it hands out is left open."""

    is_limited: ClassVar[bool] = True

    def _share(self, limits: RateLimits) -> None:
        """Take turns by ``limits``; to be called once, first."""
        self._limits = limits
        self._contenders: dict[ModelInstance, Contender] = {}
        self._instances: dict[Contender, ModelInstance] = {}

    @abstractmethod
    def run_next(self, contender: Contender) -> bool:
        """It is this instance's turn; False when there is nothing for it to run, or not yet."""

    # Instances that come and go

    def begin(self, places: Mapping[ModelInstance, InstancePosition]) -> None:
        """Take in the first instances, those that are to serve; called in a loading thread, before any starts.

        Raises:
            ModelLoadError: one could never run.
        """
        _on_loop(self._loop, lambda: self.join(places))
        super().begin(places)

    def join(self, places: Mapping[ModelInstance, InstancePosition]) -> None:
        """Further instances are about to come, to serve from ``serve_by`` on; errors as ``begin``."""
        coming = {instance: contender_of(place) for instance, place in places.items()}
        self._limits.join(coming.values(), self)
        self._contenders.update(coming)
        self._instances.update({contender: instance for instance, contender in coming.items()})

    def leave(self, instances: Sequence[ModelInstance]) -> None:
        """Instances have ended, or never began."""
        for instance in instances:
            if (contender := self._contenders.pop(instance, None)) is not None:
                del self._instances[contender]
                self._limits.leave(contender)
        self._limits.hand_out()

    def serve_by(self, fresh: list[ModelInstance]) -> None:
        """The instances have changed; ``fresh`` are those that can take a batch now."""
        for instance in self.idle:
            if instance in self.passive:
                self._limits.limiter.withdraw(self._contenders[instance])
        super().serve_by(fresh)

    def close(self) -> None:
        """Give the loop's own resources back, and those that instances held; the last call."""
        super().close()
        self.leave(list(self._contenders))

    # Turns

    def freed(self, instance: ModelInstance) -> None:
        """An instance has nothing to run and gives back what it held; one that is passive gets no batch again."""
        self._give_back(instance)
        super().freed(instance)
        self._limits.hand_out()

    def take_back(self, instance: ModelInstance) -> None:
        """An instance can take no batch for now: it died, and holds nothing."""
        super().take_back(instance)
        if (contender := self._contenders.get(instance)) is not None:
            self._limits.limiter.withdraw(contender)
        self._give_back(instance)
        self._limits.hand_out()

    def _give_back(self, instance: ModelInstance) -> None:
        if (contender := self._contenders.get(instance)) is not None:
            self._limits.limiter.release(contender)


class LimitedDispatcher(TurnTaker):
    """Hands a batch to an idle instance when it is that instance's turn among those of all models."""

    def __init__(
        self,
        spec: ModelSpec,
        loop: asyncio.AbstractEventLoop,
        answers: ModelResponder,
        limits: RateLimits,
        strategy: CustomBatching | None = None,
    ) -> None:
        super().__init__(spec, loop, answers, strategy)
        self._share(limits)

    def turn(self) -> None:
        """End of a loop turn in which requests came or an instance became idle: ask for the turns of those that are."""
        self.turn_is_set = False
        now_ns = monotonic_ns()
        if self._waiting_time is not None:
            self._waiting_time.look(now_ns)
        self._contend(now_ns)
        self._limits.hand_out()

    def discard(self, request: InferRequest) -> bool:
        """Take a request out of the queue; False when it waits no more."""
        was_queued = super().discard(request)
        if was_queued and self.idle and not self.turn_is_set:
            # What is left may have to wait for others. Many may leave together, and one look is enough.
            self.turn_is_set = True
            self._loop.call_soon(self.turn)
        return was_queued

    def _contend(self, now_ns: int) -> None:
        """Let idle instances ask for their turns, if there is a batch to be run now."""
        count, wake_ns = self.batcher.due(now_ns)
        if not count:
            self._stand_back(wake_ns)
            return
        for instance in self.idle:
            self._limits.limiter.ask(self._contenders[instance])

    def _stand_back(self, wake_ns: int) -> None:
        """There is nothing to run, or not before ``wake_ns``.

        Whoever waits for its turn all the same would keep resources from others.
        """
        for instance in self.idle:
            self._limits.limiter.withdraw(self._contenders[instance])
        if wake_ns:
            self._wake_at(wake_ns)

    def run_next(self, contender: Contender) -> bool:
        """It is this instance's turn; False when there is nothing for it to run, or not yet."""
        now_ns = monotonic_ns()
        if self._waiting_time is not None:
            self._waiting_time.look(now_ns)
        requests, wake_ns = self.batcher.take(now_ns)
        if not requests:
            # Nobody asks here: a batch strategy may say another thing each time it is asked.
            self._stand_back(wake_ns)
            return False
        self._answers.statistics.pending -= len(requests)
        instance = self._instances[contender]
        self.idle.remove(instance)
        self._contend(now_ns)
        if finished := self._run(instance, Batch(requests), now_ns):
            self.freed(instance)
            self._answers.settle(finished)
        return True


def contender_of(place: InstancePosition) -> Contender:
    """An instance as the limiter sees it. One that is on no GPU belongs to device 0, as in the reference."""
    group, limits = place.group, place.group.rate_limiter
    device = group.gpus[place.index % len(group.gpus)] if group.gpus else 0
    needs = {Resource(r.name, GLOBAL if r.is_global else device): r.count for r in limits.resources}
    return Contender(needs, limits.priority)


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call ``function`` on the event loop, whichever thread this is; gives back when it is done, and what it raises."""
    if asyncio._get_running_loop() is loop:
        function()
        return
    done: Future[None] = Future()

    def call() -> None:
        try:
            function()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    try:
        loop.call_soon_threadsafe(call)
        done.result(LOOP_S)
    except (RuntimeError, TimeoutError):
        raise ModelLoadError("the server ends, or did not take in the instances of the model in time") from None
