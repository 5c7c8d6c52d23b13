"""The instances of a loaded model: made, started, warmed up and ended, and exchanged for others while it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from naiad.backend_api.backend import Backend, Instance, WorkerSpec
from naiad.backend_api.decoupled import DecoupledBackend, DecoupledInstance
from naiad.backend_api.request_batch import RequestBatchBackend
from naiad.backend_api.streaming import RequestListBackend, StreamingBackend
from naiad.config.sequence import run_spec
from naiad.config.spec import ModelSpec
from naiad.execution.batching.batch import Batch
from naiad.execution.instances.decoupled import SteppedDecoupledInstance, run_steps
from naiad.execution.instances.inline import InlineInstance
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.instances.request_batch import RequestBatchThread
from naiad.execution.instances.request_lists import RequestListThreadInstance
from naiad.execution.instances.short_runs import ShortRuns
from naiad.execution.instances.streaming import StreamEventSink, StreamingThreadInstance
from naiad.execution.instances.thread import ThreadInstance
from naiad.execution.instances.warmup import Warmup
from naiad.execution.model.group_change import GroupChange, InstancePosition, regroup
from naiad.execution.model.startup import Startable, end_all, start_all, start_one_by_one
from naiad.execution.model_directory import ModelDirectory
from naiad.execution.worker.events import WorkerEventSink
from naiad.execution.worker.framework_instance import FrameworkInstance, FrameworkSpec
from naiad.execution.worker.instance import ProcessInstance
from naiad.execution.worker.warmup import RestartWarmup, WarmProcess
from naiad.gpus.lost import lost_gpus
from naiad.request import Array
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.worker.ipc.arena import Arena


class InstanceEventSink(WorkerEventSink[ProcessInstance], StreamEventSink, Protocol):
    """Takes the responses and events of the instances of a model."""

    # Both have it, for instances of their own.
    def worker_completed(self, instance: ModelInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """Take one response to each request of a batch that is over, in their order."""


class InstanceSet:
    """All instances of one model version. Belongs to the event loop, except where a method says otherwise.

    Args:
        backend: creates them.
        loop: the event loop.
        events: takes the responses and events of workers and of stepped instances.
        finished: called in an instance's thread with the batches that are done.
        models: the models that instances can call.
        metrics: shows the metrics that instances make themselves.
        arena: where large inputs for workers may lie.

    Attributes:
        all: in the order in which they were made.
        passive: instances that get no batches: of passive groups, still coming, or leaving.
    """

    def __init__(
        self,
        backend: Backend,
        loop: asyncio.AbstractEventLoop,
        events: InstanceEventSink,
        finished: Callable[[ThreadInstance, list[Batch]], object],
        models: ModelDirectory | None,
        metrics: CustomMetrics,
        arena: Arena | None = None,
    ) -> None:
        self.all: list[ModelInstance] = []
        self.passive: set[ModelInstance] = set()
        self._places: dict[ModelInstance, InstancePosition] = {}
        self._leaving: set[ModelInstance] = set()
        # Starts workers so that they are warm when they have started.
        self._warm: dict[ModelInstance, Startable] = {}
        self._backend = backend
        self._loop = loop
        self._events = events
        self._finished = finished
        self._models = models
        self._metrics = metrics
        self._arena = arena

    # The first ones, in a loading thread

    def make_all(self, spec: ModelSpec, warmup: Warmup) -> None:
        """Create the instances of the groups of ``spec``; none starts yet."""
        spec = run_spec(spec)
        self._backend.context.policies.check(spec.name, spec.instance_groups)
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
            # Samples may be large, and instances keep the function that created them.
            warmup.forget()

    def _make(self, place: InstancePosition, spec: ModelSpec, warmup: Warmup) -> ModelInstance:
        made = self._new(place, spec, warmup)
        self.all.append(made)
        self._places[made] = place
        return made

    def _new(self, place: InstancePosition, spec: ModelSpec, warmup: Warmup) -> ModelInstance:
        name, group = place.name, place.group
        affinity = self._backend.context.policies.affinity(group, place.index)
        worker = self._backend.worker_spec(group, place.index)
        if worker is not None:
            return self._new_worker(worker, place, spec, warmup)
        if isinstance(self._backend, DecoupledBackend):
            return self._new_stepped(self._backend, place, spec, warmup)
        if isinstance(self._backend, StreamingBackend):
            make = partial(self._backend.create_streaming, group, place.index)
            return StreamingThreadInstance(name, spec, make, self._events, self._loop)
        if isinstance(self._backend, RequestListBackend):
            make_list = partial(self._backend.create_request_list, group, place.index)
            return RequestListThreadInstance(name, spec, make_list, self._events, self._loop)
        if isinstance(self._backend, RequestBatchBackend):
            make_batch = affinity.bound(partial(self._backend.create_request_batch, group, place.index))
            own_warmup = None if group.passive else warmup
            return RequestBatchThread(name, spec, make_batch, own_warmup, self._events, self._loop)
        create: Callable[[], Instance] = partial(self._backend.create_instance, group, place.index)
        if not group.passive:
            create = warmup.creating(name, spec, create)
        # An instance with cores of its own does not run on those of the event loop.
        policies = self._backend.context.policies
        if self._backend.runs_inline and not policies.has_cores((group,)):
            return InlineInstance(name, spec, create)
        # With host policies the event loop may have cores that models have not.
        short_runs = ShortRuns() if self._backend.runs_by_shape and not policies.affinities else None
        return ThreadInstance(name, spec, affinity.bound(create), self._finished, short_runs)

    def _new_worker(
        self, worker: WorkerSpec, place: InstancePosition, spec: ModelSpec, warmup: Warmup
    ) -> ProcessInstance:
        events, loop = self._events, self._loop
        made: ProcessInstance
        if isinstance(worker, FrameworkSpec):
            made = FrameworkInstance(place.name, spec, worker, events, loop, self._arena)
        else:
            made = ProcessInstance(place.name, spec, worker, events, loop, self._models, self._metrics, self._arena)
        if warmup.samples and not place.group.passive:
            self._warm[made] = WarmProcess(made, spec, warmup, events, loop)
            made.warm_again = RestartWarmup(spec, warmup.again, events, loop)
        return made

    def _new_stepped(
        self, backend: DecoupledBackend, place: InstancePosition, spec: ModelSpec, warmup: Warmup
    ) -> SteppedDecoupledInstance:
        def warm(instance: DecoupledInstance) -> None:
            if not place.group.passive:
                warmup.run_all(place.name, partial(run_steps, instance))

        create = partial(backend.create_decoupled, place.group, place.index)
        return SteppedDecoupledInstance(place.name, spec, create, warm, self._events, self._loop)

    def serving(self, instances: Sequence[ModelInstance]) -> dict[ModelInstance, InstancePosition]:
        """The places of the ``instances`` that are not in passive groups."""
        places = {instance: self._places[instance] for instance in instances}
        return {instance: place for instance, place in places.items() if not place.group.passive}

    def clear(self) -> None:
        """Release what belongs to the event loop and forget all instances; the last call."""
        for instance in self.all:
            instance.detach()
        # They refer to the model, which refers to this. A cycle that exists when the garbage collector is frozen would
        # never be collected.
        del self._events, self._finished
        self.all.clear()
        self.passive.clear()
        self._places.clear()
        self._warm.clear()
        self._leaving.clear()

    @property
    def problem(self) -> str:
        """Why instances cannot work, "" when all can."""
        found = [f"{i.name}: {i.problem}" if i.problem else i.not_ready for i in self.all if i not in self._leaving]
        if lost_gpus.problem and any(self._is_on_gpu_here(instance) for instance in self.all):
            found.append(lost_gpus.problem)
        return "; ".join(filter(None, found))

    def _is_on_gpu_here(self, instance: ModelInstance) -> bool:
        return not instance.is_worker and self._places[instance].group.kind == "KIND_GPU"

    # Others in their place

    def regroup(self, spec: ModelSpec, warmup: Warmup) -> GroupChange[ModelInstance]:
        """Create the instances that the groups of ``spec`` lack; none starts or serves yet.

        Raises:
            NaiadError: such instances cannot be created here.
        """
        self._backend.context.policies.check(spec.name, spec.instance_groups)
        staying = {instance: place for instance, place in self._places.items() if instance not in self._leaving}
        # The names of leaving instances stay taken until these have ended.
        leaving, places = regroup(staying, spec.instance_groups, {place.name for place in self._places.values()})
        coming: list[ModelInstance] = []
        try:
            for place in places:
                coming.append(self._make(place, spec, warmup))
        except BaseException:
            self.forget(coming)
            raise
        # An instance that dies and restarts meanwhile must not get a batch.
        self.passive.update(coming)
        return GroupChange(coming, leaving)

    @property
    def leaving(self) -> int:
        """How many instances leave that have not ended."""
        return len(self._leaving)

    def exchange(self, change: GroupChange[ModelInstance]) -> list[ModelInstance]:
        """Let new instances serve, and leaving ones no more.

        Returns:
            The new ones that can take a batch at once.
        """
        self._leaving.update(change.leaving)
        self.passive.update(change.leaving)
        serving = [i for i in change.coming if not self._places[i].group.passive]
        self.passive.difference_update(serving)
        # An instance that restarted meanwhile, and warms up again, reports when it is warm.
        return [i for i in serving if i.is_up and not i.problem]

    def forget(self, instances: Sequence[ModelInstance]) -> None:
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
