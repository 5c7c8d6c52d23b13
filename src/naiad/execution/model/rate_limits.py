"""Instances that run only when it is their turn and their resources are free (``--rate-limit=execution_count``).

``scheduling/rate_limiter.py`` decides whose turn it is. Until then requests stay in the queues of their models: they
can be cancelled, their deadlines hold, and a batch is formed when its instance may run it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar, Final

from naiad.errors import ModelLoadError
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.model.group_change import InstancePosition
from naiad.scheduling.rate_limiter import GLOBAL, Contender, RateLimiter, Resource, ResourceLimit

logger = logging.getLogger("naiad")

LOOP_S: Final = 30.0
"""How long a loading thread waits for the event loop to register its instances."""


class RateLimits:
    """The resources that the instances of all models share. The event loop alone uses it."""

    def __init__(self, limits: Sequence[ResourceLimit] = ()) -> None:
        self.limiter = RateLimiter(limits)
        self._gates: dict[Contender, RateLimitGate] = {}
        self._is_handing_out = False

    def join(self, contenders: Iterable[Contender], gate: RateLimitGate) -> None:
        """Register instances of one model, all or none; errors as ``RateLimiter.join``."""
        found = list(contenders)
        self.limiter.join(found)
        # After ``join``, which registers all or raises.
        self._gates.update(dict.fromkeys(found, gate))

    def leave(self, contender: Contender) -> None:
        """Forget an instance; the resources that it held are free for others."""
        self.limiter.leave(contender)
        self._gates.pop(contender, None)

    def hand_out(self) -> None:
        """Let every instance run whose turn it is."""
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
            was_used = self._gates[contender].run_next(contender)
        except Exception:
            # One model's fault must not keep the others from their turns.
            logger.exception("an instance could not be given its turn")
        if not was_used:
            self.limiter.release(contender, was_used=False)


class InstanceGate:
    """Stands between the queue of a model and its idle instances. This one lets all of them run at once.

    Attributes:
        is_limited: idle instances wait for their turns: the queue requests these instead of taking a batch.
    """

    __slots__ = ()
    is_limited: ClassVar[bool] = False

    def begin(self, places: Mapping[ModelInstance, InstancePosition]) -> None:
        """Register the first instances of a model; called in a loading thread, before any starts.

        Raises:
            ModelLoadError: one of them needs more than there is, and could never run.
        """

    def join(self, places: Mapping[ModelInstance, InstancePosition]) -> None:
        """Register further instances, on the event loop; errors as ``begin``."""

    def leave(self, instances: Iterable[ModelInstance]) -> None:
        """Forget instances that have ended, or never began."""

    def close(self) -> None:
        """Forget all instances."""

    def request(self, instance: ModelInstance) -> None:
        """Request a turn for an idle instance that has something to run."""

    def withdraw(self, instance: ModelInstance) -> None:
        """Drop the request for a turn, if there is one: waiting on would keep resources from others."""

    def release(self, instance: ModelInstance) -> None:
        """Release the resources that an instance held while it ran."""

    def hand_out(self) -> None:
        """Let every instance run whose turn it is, of this and of other models."""


OPEN_GATE: Final = InstanceGate()


class RateLimitGate(InstanceGate):
    """Lets an instance run when it is its turn among those of all models.

    Args:
        run_next: hands a batch to an instance whose turn it is; False when there is nothing for it to run, or not yet.
    """

    __slots__ = ("_contenders", "_instances", "_limits", "_loop", "_run_next")
    is_limited = True

    def __init__(
        self, limits: RateLimits, loop: asyncio.AbstractEventLoop, run_next: Callable[[ModelInstance], bool]
    ) -> None:
        self._limits = limits
        self._loop = loop
        self._run_next = run_next
        self._contenders: dict[ModelInstance, Contender] = {}
        self._instances: dict[Contender, ModelInstance] = {}

    def run_next(self, contender: Contender) -> bool:
        """It is this instance's turn; False when it was not used."""
        return self._run_next(self._instances[contender])

    def begin(self, places: Mapping[ModelInstance, InstancePosition]) -> None:
        _on_loop(self._loop, lambda: self.join(places))

    def join(self, places: Mapping[ModelInstance, InstancePosition]) -> None:
        coming = {instance: contender_of(place) for instance, place in places.items()}
        self._limits.join(coming.values(), self)
        self._contenders.update(coming)
        self._instances.update({contender: instance for instance, contender in coming.items()})

    def leave(self, instances: Iterable[ModelInstance]) -> None:
        for instance in instances:
            if (contender := self._contenders.pop(instance, None)) is not None:
                del self._instances[contender]
                self._limits.leave(contender)
        # Other instances may have waited for what these held, or behind them.
        self._limits.hand_out()

    def close(self) -> None:
        self.leave(list(self._contenders))

    def request(self, instance: ModelInstance) -> None:
        self._limits.limiter.enqueue(self._contenders[instance])

    def withdraw(self, instance: ModelInstance) -> None:
        # A worker that died may have been removed since.
        if (contender := self._contenders.get(instance)) is not None:
            self._limits.limiter.withdraw(contender)

    def release(self, instance: ModelInstance) -> None:
        if (contender := self._contenders.get(instance)) is not None:
            self._limits.limiter.release(contender)

    def hand_out(self) -> None:
        self._limits.hand_out()


def contender_of(place: InstancePosition) -> Contender:
    """An instance as the limiter sees it. One that is on no GPU belongs to device 0, as in the reference."""
    group, limits = place.group, place.group.rate_limiter
    device = group.gpus[place.index % len(group.gpus)] if group.gpus else 0
    needs = {Resource(r.name, GLOBAL if r.is_global else device): r.count for r in limits.resources}
    return Contender(needs, limits.priority)


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call ``function`` on the event loop, from any thread; returns when it is done, and raises what it raises."""
    # Not ``get_running_loop``, which raises in a thread without a loop.
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
    # RuntimeError: the loop is closed.
    except (RuntimeError, TimeoutError):
        raise ModelLoadError("the server ends, or did not take in the instances of the model in time") from None
