"""The instance of a model version that takes the next batch while it runs one: no time passes between the two."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from naiad.execution.batching.batch import Batch
from naiad.execution.instances.model_instance import ModelInstance
from naiad.request import InferRequest


class RunAhead:
    """The second place that the only serving instance has among the idle ones.

    Beside other instances a batch would wait in it while they are idle, so it has the place only while it is alone.

    Args:
        idle: the instances that can take a batch. ``instance`` is there twice while it runs nothing, and once while it
            runs a batch.
        is_wanted: whether batches may be taken ahead at all.

    Attributes:
        instance: the instance that may run ahead; None for none.
        holder: the instance whose second place is taken, by a batch that waits in it or was given up; None for none.
        owing: instances that lost the place while they had two batches, and are not idle after the first of them.
        lost: instances that cannot run for now, and get the place when they are back.
    """

    __slots__ = ("_batch", "_idle", "_is_wanted", "holder", "instance", "lost", "owing")

    def __init__(self, idle: list[ModelInstance], is_wanted: bool) -> None:
        self._idle = idle
        self._is_wanted = is_wanted
        self.instance: ModelInstance | None = None
        self.holder: ModelInstance | None = None
        self.owing: set[ModelInstance] = set()
        self.lost: set[ModelInstance] = set()
        self._batch: Batch | None = None

    def choose(self, registered: Iterable[ModelInstance], passive: Collection[ModelInstance]) -> None:
        """Give the place to the only instance that is not passive; an earlier one gives it back."""
        serving = [instance for instance in registered if instance not in passive]
        alone = serving[0] if self._is_wanted and len(serving) == 1 and serving[0].runs_ahead else None
        if alone in self.lost:
            alone = None
        before, self.instance = self.instance, alone
        if before is alone:
            return
        if before in self._idle:
            self._idle.remove(before)
        elif before is not None and before not in passive:
            self.owing.add(before)
        if alone in self.owing:
            self.owing.remove(alone)
        elif alone is not None:
            self._idle.append(alone)

    def forget(self, instances: Sequence[ModelInstance]) -> None:
        """Forget instances that have ended."""
        self.owing.difference_update(instances)
        self.lost.difference_update(instances)

    def lose(self, instance: ModelInstance) -> Batch | None:
        """Take the place from an instance that cannot run for now; the batch that waited in it, which has not begun."""
        if self._is_wanted:
            self.lost.add(instance)
        self.owing.discard(instance)
        if instance is self.instance:
            self.instance = None
        if instance is not self.holder:
            return None
        batch = self._batch
        self._batch = self.holder = None
        return batch

    def run(self, instance: ModelInstance, batch: Batch) -> list[Batch] | None:
        """Hand a batch to an instance that runs another one; returns as ``ModelInstance.run``."""
        refused = instance.run_ahead(batch)
        if not refused:
            self._batch, self.holder = batch, instance
        return refused

    def drop(self, request: InferRequest) -> bool:
        """Give up the batch of a request that waits in ``holder``; False when it does not, or has begun.

        Its place stays taken until the running batch is done: a worker has read the batch, or will. With a place for
        the next request at once, callers that come and leave would fill its memory.
        """
        batch, instance = self._batch, self.holder
        if batch is None or instance is None or batch.requests[0] is not request or not instance.drop(batch):
            return False
        self._batch = None
        return True

    def next_begins(self) -> bool:
        """Note that ``holder`` is done with a batch, and give its second place back; whether a batch waited there, and
        has begun."""
        batch, self._batch, self.holder = self._batch, None, None
        return batch is not None

    def close(self) -> None:
        """Release instances and batches."""
        self.owing.clear()
        self.lost.clear()
        self.instance = self._batch = self.holder = None
