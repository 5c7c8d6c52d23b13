"""The instance of a model version that takes further batches while it runs one: no time passes between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from naiad.execution.batching.batch import Batch
from naiad.execution.instances.model_instance import ModelInstance
from naiad.request import InferRequest

LARGE_BYTES: Final = 1 << 16
"""A batch with larger inputs takes all places that are left: a process may hold copies of what waits in it."""


class RunAhead:
    """The further places that the only serving instance has among the idle ones.

    Beside other instances batches would wait in it while they are idle, so it has the places only while it is alone.

    Args:
        idle: the instances that can take a batch. ``instance`` is there once for each batch that it can take.
        is_wanted: whether batches may be taken ahead at all.

    Attributes:
        instance: the instance that may run ahead; None for none.
        places: how many batches it may take beside the one that it runs.
        waiting: what waits in instances, in the order in which it was handed over, with the places that it takes; None
            for each batch that was given up. One that is replaced still has what it got.
        owing: instances that lost the places while these were taken: how many of these they do not get back.
        lost: instances that cannot run for now, and get the places when they are back.
    """

    __slots__ = ("_idle", "_is_wanted", "instance", "lost", "owing", "places", "waiting")

    def __init__(self, idle: list[ModelInstance], is_wanted: bool) -> None:
        self._idle = idle
        self._is_wanted = is_wanted
        self.instance: ModelInstance | None = None
        self.places = 0
        self.owing: dict[ModelInstance, int] = {}
        self.lost: set[ModelInstance] = set()
        self.waiting: dict[ModelInstance, deque[tuple[Batch | None, int]]] = {}

    def choose(self, registered: Iterable[ModelInstance], passive: Collection[ModelInstance]) -> None:
        """Give the places to the only instance that is not passive; an earlier one gives them back."""
        serving = [instance for instance in registered if instance not in passive]
        alone = serving[0] if self._is_wanted and len(serving) == 1 and serving[0].runs_ahead else None
        if alone in self.lost:
            alone = None
        before, places = self.instance, self.places
        if before is alone:
            return
        self.instance, self.places = alone, 0 if alone is None else alone.runs_ahead
        if before is not None:
            self._release_places(before, places, before in passive)
        if alone is not None:
            self._idle += [alone] * (self.places - self.owing.pop(alone, 0))

    def _release_places(self, instance: ModelInstance, places: int, is_passive: bool) -> None:
        free = self._idle.count(instance)
        taken = 1 + places - free
        for _ in range(free if taken else places):
            self._idle.remove(instance)
        if taken > 1 and not is_passive:
            self.owing[instance] = taken - 1

    def withhold(self, instance: ModelInstance) -> bool:
        """Withhold a place that has come free from an instance that does not get it back; False if it does."""
        left = self.owing.pop(instance, 0)
        if left > 1:
            self.owing[instance] = left - 1
        return left > 0

    def forget(self, instances: Sequence[ModelInstance]) -> None:
        """Forget instances that have ended."""
        for instance in instances:
            self.owing.pop(instance, None)
        self.lost.difference_update(instances)

    def lose(self, instance: ModelInstance) -> list[Batch]:
        """Take the places from an instance that cannot run for now; the batches that waited in it, which have not
        begun."""
        if self._is_wanted:
            self.lost.add(instance)
        self.owing.pop(instance, None)
        if instance is self.instance:
            self.instance, self.places = None, 0
        return [batch for batch, _ in self.waiting.pop(instance, ()) if batch is not None]

    def run(self, instance: ModelInstance, batch: Batch) -> list[Batch] | None:
        """Hand a batch to an instance that runs another one; returns as ``ModelInstance.run``."""
        refused = instance.run_ahead(batch)
        if not refused:
            places = 1
            if batch.requests[0].held_bytes > LARGE_BYTES:
                places += len(self._idle)
                self._idle.clear()
            self.waiting.setdefault(instance, deque()).append((batch, places))
        return refused

    def drop(self, request: InferRequest) -> bool:
        """Give up the batch of a request that waits in an instance; False when it does not, or has begun.

        Its place stays taken until the batch before it is done: a worker has read the batch, or will. With a place for
        the next request at once, callers that come and leave would fill its memory.
        """
        for instance, waiting in self.waiting.items():
            for at, (batch, places) in enumerate(waiting):
                if batch is not None and batch.requests[0] is request:
                    if not instance.drop(batch):
                        return False
                    waiting[at] = None, places
                    return True
        return False

    def next_begins(self, instance: ModelInstance) -> tuple[bool, int]:
        """Note that an instance in which batches wait is done with one: whether the next one begins, and how many
        places come back beside that of the batch that is done."""
        waiting = self.waiting[instance]
        back = 0
        begins = False
        while waiting and not begins:
            batch, places = waiting.popleft()
            begins = batch is not None
            back += places - begins
        if not waiting:
            del self.waiting[instance]
        return begins, back

    def close(self) -> None:
        """Release instances and batches."""
        self.owing.clear()
        self.lost.clear()
        self.waiting.clear()
        self.instance = None
