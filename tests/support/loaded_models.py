"""Loaded models made of small instances, and callers that wait for their answers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from naiad.backend_api.backend import Arrays, Backend, BackendContext, Instance
from naiad.backends import registry
from naiad.config.spec import BatchingSpec, InstanceGroupSpec, ModelSpec, QueueSpec, TensorSpec
from naiad.errors import NaiadError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.request import RequestOptions
from naiad.scheduling.admission import RequestBudget
from naiad.tensor.dtypes import BY_WIRE
from support.event_loops import WAIT_S
from support.noted_requests import NotedRequest

CONTEXT = BackendContext("m", 1, Path("."), None, {}, 1)
Execute = Callable[[Arrays, Sequence[str]], Arrays]


def tensor(name: str, wire: str = "FP32", dims: Sequence[int] = (1,), batched: bool = True, **more: Any) -> TensorSpec:
    dims = tuple(dims)
    return TensorSpec(name, BY_WIRE[wire], dims, (-1, *dims) if batched else dims, **more)


def spec(
    inputs: Sequence[TensorSpec] = (tensor("x"),),
    outputs: Sequence[TensorSpec] = (tensor("y"),),
    *,
    max_batch_size: int = 8,
    batching: BatchingSpec | None = None,
    count: int = 1,
    parameters: Mapping[str, str] | None = None,
    queue: QueueSpec | None = None,
) -> ModelSpec:
    """A model ``m`` from one float a row to one float a row, unless it is said otherwise."""
    return ModelSpec(
        name="m",
        platform="",
        backend="identity",
        max_batch_size=max_batch_size,
        inputs={t.name: t for t in inputs},
        outputs={t.name: t for t in outputs},
        instance_groups=(InstanceGroupSpec("m", "KIND_CPU", count),),
        batching=batching,
        queue=queue,
        parameters=parameters or {},
    )


class FunctionInstance(Instance):
    """Runs ``function``; counts how often it was closed and in which thread."""

    def __init__(self, function: Execute) -> None:
        self._function = function
        self.closed_in: list[threading.Thread] = []

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        return self._function(inputs, outputs)

    def close(self) -> None:
        self.closed_in.append(threading.current_thread())


class FunctionBackend(Backend):
    """Instance i runs what ``make(i)`` gives; the instances and the calls of ``close`` are kept."""

    def __init__(self, make: Callable[[int], Execute]) -> None:
        super().__init__(CONTEXT)
        self._make = make
        self.instances: list[FunctionInstance] = []
        self.closed = 0

    def start(self, spec: ModelSpec) -> None:
        return

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        self.instances.append(FunctionInstance(self._make(index)))
        return self.instances[-1]

    def close(self) -> None:
        self.closed += 1


def identity(model: ModelSpec) -> Backend:
    """The built-in identity backend, started for ``model``."""
    backend = registry.create("identity", replace(CONTEXT, model=model.name))
    backend.start(model)
    return backend


def negate(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
    return {"y": -inputs["x"]}


POISON = 666.0


def picky(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
    """As ``negate``, but a batch with ``POISON`` in it fails."""
    if POISON in inputs["x"]:
        raise RuntimeError("poisoned")
    return negate(inputs, ("y",))


@contextlib.contextmanager
def loaded(model: ModelSpec, backend: Backend | Execute, budget: RequestBudget | None = None) -> Iterator[LoadedModel]:
    """A started model on the running loop; it is closed in the end, which must not take long."""
    made = backend if isinstance(backend, Backend) else FunctionBackend(lambda index: backend)
    found = LoadedModel(model, 1, made, asyncio.get_running_loop(), budget=budget)
    found.start()
    try:
        yield found
    finally:
        assert found.close(WAIT_S)
        found.detach()


class Caller(NotedRequest):
    """A request from ``x`` to ``y`` whose answers are noted, with their order among those that share ``order``."""

    __slots__ = ("order",)

    def __init__(
        self, *values: float, order: list[Caller] | None = None, options: RequestOptions | None = None
    ) -> None:
        rows = np.array(values, np.float32).reshape(-1, 1)
        super().__init__(options or RequestOptions(("y",), len(rows), (("x", (1,)),)), {"x": rows})
        self.order = order

    def respond(self, outputs: Mapping[str, np.ndarray], error: NaiadError | None) -> None:
        if self.order is not None:
            self.order.append(self)
        super().respond(outputs, error)

    async def answer(self) -> list[float]:
        """The values of the output ``y``; raises the error that came instead."""
        return [float(v) for v in (await self.outputs())["y"].ravel()]
