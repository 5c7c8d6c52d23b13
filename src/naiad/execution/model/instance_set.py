"""The instances of a loaded model: made, started, warmed up and ended, and exchanged for others while it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from naiad.backend_api.backend import Backend, Instance, WorkerSpec
from naiad.backend_api.decoupled import DecoupledBackend, DecoupledInstance
from naiad.config.sequence import run_spec
from naiad.config.spec import ModelSpec
from naiad.execution.batching.batch import Batch
from naiad.execution.instances.decoupled import StepAnswers, SteppedDecoupledInstance, run_steps
from naiad.execution.instances.inline import InlineInstance
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.instances.thread import ThreadInstance
from naiad.execution.instances.warmup import Warmup
from naiad.execution.model.group_change import GroupChange, InstancePosition, regroup
from naiad.execution.model.startup import Startable, end_all, start_all, start_one_by_one
from naiad.execution.model_directory import ModelDirectory
from naiad.execution.worker.events import WorkerEventSink
from naiad.execution.worker.framework_instance import FrameworkInstance, FrameworkSpec
from naiad.execution.worker.instance import ProcessInstance
from naiad.execution.worker.warmup import RestartWarmup, WarmProcess
from naiad.telemetry.metrics.custom import CustomMetrics


class SetAnswers(WorkerEventSink[ProcessInstance], StepAnswers, Protocol):
    """Takes what the instances of a model say."""


class InstanceSet:
    """All instances of one model version. Used on the event loop, where it is not said otherwise.

    Args:
        backend: makes them.
        loop: the event loop.
        answers: whom those that are processes, or answer step by step, answer to.
        finished: called in an instance's thread with the batches that are done.
        models: those that they can call; ``metrics`` is where what they count themselves is shown.

    Attributes:
        all: in the order in which they were made.
        passive: those that get no batches: of passive groups, still coming, or leaving.
    """

    def __init__(
        self,
        backend: Backend,
        loop: asyncio.AbstractEventLoop,
        answers: SetAnswers,
        finished: Callable[[ThreadInstance, list[Batch]], object],
        models: ModelDirectory | None,
        metrics: CustomMetrics,
    ) -> None:
        self.all: list[ModelInstance] = []
        self.passive: set[ModelInstance] = set()
        self._places: dict[ModelInstance, InstancePosition] = {}
        self._leaving: set[ModelInstance] = set()
        # How those that are to be warm when they have started are started.
        self._warm: dict[ModelInstance, Startable] = {}
        self._backend = backend
        self._loop = loop
        self._answers = answers
        self._finished = finished
        self._models = models
        self._metrics = metrics

    # The first ones, in a loading thread

    def make_all(self, spec: ModelSpec, warmup: Warmup) -> None:
        """Make what the groups of ``spec`` ask for; nothing is started yet."""
        spec = run_spec(spec)
        for group in spec.instance_groups:
            made = [self._make(InstancePosition(group, index), spec, warmup) for index in range(group.count)]
            if group.passive:
                self.passive.update(made)

    def start(self, instances: Sequence[ModelInstance], warmup: Warmup) -> None:
        """Start instances and warm them up; called in a loading thread.

        Raises:
            NaiadError: one could not be started; the caller ends them all.
        """
        try:
            start_all([self._warm.pop(i, i) for i in instances if i.is_worker], self._backend.context.cores)
            start_one_by_one([i for i in instances if not i.is_worker])
        finally:
            warmup.forget()

    def _make(self, place: InstancePosition, spec: ModelSpec, warmup: Warmup) -> ModelInstance:
        made = self._new(place, spec, warmup)
        self.all.append(made)
        self._places[made] = place
        return made

    def _new(self, place: InstancePosition, spec: ModelSpec, warmup: Warmup) -> ModelInstance:
        name, group = place.name, place.group
        child = self._backend.child(group, place.index)
        if child is not None:
            return self._new_worker(child, place, spec, warmup)
        if isinstance(self._backend, DecoupledBackend):
            return self._new_stepped(self._backend, place, spec, warmup)
        create: Callable[[], Instance] = partial(self._backend.create_instance, group, place.index)
        if not group.passive:
            create = warmup.creating(name, spec, create)
        if self._backend.runs_inline:
            return InlineInstance(name, spec, create)
        return ThreadInstance(name, spec, create, self._finished)

    def _new_worker(
        self, worker: WorkerSpec, place: InstancePosition, spec: ModelSpec, warmup: Warmup
    ) -> ProcessInstance:
        answers, loop = self._answers, self._loop
        made: ProcessInstance
        if isinstance(worker, FrameworkSpec):
            made = FrameworkInstance(place.name, spec, worker, answers, loop)
        else:
            made = ProcessInstance(place.name, spec, worker, answers, loop, self._models, self._metrics)
        if warmup.samples and not place.group.passive:
            self._warm[made] = WarmProcess(made, spec, warmup, answers, loop)
            made.warm_again = RestartWarmup(spec, warmup.again, answers, loop)
        return made

    def _new_stepped(
        self, backend: DecoupledBackend, place: InstancePosition, spec: ModelSpec, warmup: Warmup
    ) -> SteppedDecoupledInstance:
        def warm(instance: DecoupledInstance) -> None:
            if not place.group.passive:
                warmup.run_all(place.name, partial(run_steps, instance))

        create = partial(backend.create_decoupled, place.group, place.index)
        return SteppedDecoupledInstance(place.name, spec, create, warm, self._answers, self._loop)

    def serving(self, instances: Sequence[ModelInstance]) -> dict[ModelInstance, InstancePosition]:
        """Where those of ``instances`` belong that are not in passive groups."""
        places = {instance: self._places[instance] for instance in instances}
        return {instance: place for instance, place in places.items() if not place.group.passive}

    def clear(self) -> None:
        """Give the loop's own resources back and forget all; the last call."""
        for instance in self.all:
            instance.detach()
        # They know the model, and so does this. A circle that was there when the collector was told to pass it over
        # would stay for good.
        del self._answers, self._finished
        self.all.clear()
        self.passive.clear()
        self._places.clear()
        self._warm.clear()
        self._leaving.clear()

    @property
    def problem(self) -> str:
        """What keeps instances from working, "" when nothing does."""
        found = [f"{i.name}: {i.problem}" if i.problem else i.not_ready for i in self.all if i not in self._leaving]
        return "; ".join(filter(None, found))

    # Others in their place

    def regroup(self, spec: ModelSpec, warmup: Warmup) -> GroupChange[ModelInstance]:
        """Make what the groups of ``spec`` ask for beyond what is there. Nothing is started, and nothing serves yet."""
        staying = {instance: place for instance, place in self._places.items() if instance not in self._leaving}
        leaving, places = regroup(staying, spec.instance_groups, {place.name for place in self._places.values()})
        coming: list[ModelInstance] = []
        try:
            for place in places:
                coming.append(self._make(place, spec, warmup))
        except BaseException:
            self.let_go(coming)
            raise
        # One that dies and comes back meanwhile must not be given a batch.
        self.passive.update(coming)
        return GroupChange(coming, leaving)

    @property
    def leaving(self) -> int:
        """How many instances leave that have not ended."""
        return len(self._leaving)

    def exchange(self, change: GroupChange[ModelInstance]) -> list[ModelInstance]:
        """Let those serve that came, and those that leave no more; gives those that can take a batch at once."""
        self._leaving.update(change.leaving)
        self.passive.update(change.leaving)
        serving = [i for i in change.coming if not self._places[i].group.passive]
        self.passive.difference_update(serving)
        # One that came back meanwhile, and warms up again, is told of when it is warm.
        return [i for i in serving if i.is_up and not i.problem]

    def may_end(self, instance: ModelInstance) -> bool:
        """Whether an instance that leaves can be ended; what a thread was given it finishes anyway."""
        return instance not in self.all or instance.is_idle

    def let_go(self, instances: Sequence[ModelInstance]) -> None:
        """Forget instances that have ended, or were never started."""
        for instance in instances:
            if instance in self._places:
                self.all.remove(instance)
                del self._places[instance]
                self.passive.discard(instance)
                self._leaving.discard(instance)
                self._warm.pop(instance, None)
                instance.detach()


def end(instances: Sequence[ModelInstance]) -> None:
    """End instances after what they run, however long that takes; called in a thread."""
    end_all(instances, None)
