"""Loaded models made of small instances, and callers that wait for their answers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np
import uvloop

from naiad.backend_api.backend import Arrays, Backend, BackendContext, Instance
from naiad.backends import registry
from naiad.config.spec import BatchingSpec, InstanceGroupSpec, ModelSpec, QueueSpec, TensorSpec
from naiad.errors import NaiadError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.request import InferRequest, RequestOptions
from naiad.scheduling.admission import RequestBudget
from naiad.tensor.dtypes import BY_WIRE

WAIT_S = 30.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.SelectorEventLoop,
}
CONTEXT = BackendContext("m", 1, Path("."), None, {}, 1)
Execute = Callable[[Arrays, Sequence[str]], Arrays]


def run(test: Coroutine[Any, Any, None], loop: str = "uvloop") -> None:
    """Run a test on the named loop, within a time limit."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(test, 3 * WAIT_S))


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


class Caller(InferRequest):
    """A request whose answers are noted, with their order among those that share ``order``."""

    __slots__ = ("answers", "done", "order")

    def __init__(
        self, *values: float, order: list[Caller] | None = None, options: RequestOptions | None = None
    ) -> None:
        rows = np.array(values, np.float32).reshape(-1, 1)
        now = monotonic_ns()
        super().__init__(options or RequestOptions(("y",), len(rows), (("x", (1,)),)), {"x": rows}, "", now)
        self.answers: list[tuple[Mapping[str, np.ndarray], NaiadError | None]] = []
        self.done = asyncio.Event()
        self.order = order

    def respond(self, outputs: Mapping[str, np.ndarray], error: NaiadError | None) -> None:
        self.answers.append((outputs, error))
        if self.order is not None:
            self.order.append(self)
        self.done.set()

    async def answer(self) -> list[float]:
        """The values of the output ``y``; raises the error that came instead."""
        await asyncio.wait_for(self.done.wait(), WAIT_S)
        assert len(self.answers) == 1
        outputs, error = self.answers[0]
        if error is not None:
            raise error
        return [float(v) for v in outputs["y"].ravel()]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until ``condition`` holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)
