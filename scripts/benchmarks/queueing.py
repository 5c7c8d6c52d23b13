"""What it costs to queue a request and to let it run or leave, by how many others wait; without sockets.

``python -m benchmarks.queueing KIND END`` prints one JSON object: microseconds of the event loop's processor time for
each request, by how many were queued. KIND is ``plain`` or ``priorities``, END ``run``, ``forward`` or ``reverse``.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from naiad.backend_api.backend import Arrays, Backend, BackendContext, Instance
from naiad.config.spec import BatchingSpec, InstanceGroupSpec, ModelSpec, QueuePolicySpec, QueueSpec, TensorSpec
from naiad.errors import NaiadError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.request import Array, InferRequest, RequestOptions
from naiad.tensor.dtypes import BY_WIRE

COUNTS = (100, 1_000, 10_000, 100_000)
ROUNDS = 5
ROWS = 32
HOUR_NS = 3600 * 1_000_000_000


class _Gated(Backend):
    """One instance that gives its input back, and waits for ``gate`` first."""

    def __init__(self) -> None:
        super().__init__(BackendContext("m", 1, Path("."), None, {}, 1))
        self.gate = threading.Event()

    def start(self, spec: ModelSpec) -> None:
        return

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        return _GatedInstance(self.gate)


class _GatedInstance(Instance):
    def __init__(self, gate: threading.Event) -> None:
        self._gate = gate

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        self._gate.wait()
        return {"y": inputs["x"]}


class _Silent(InferRequest):
    __slots__ = ()

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        return


def _spec(kind: str) -> ModelSpec:
    fp32 = BY_WIRE["FP32"]
    made = ModelSpec(
        name="m",
        platform="",
        backend="gated",
        max_batch_size=ROWS,
        inputs={"x": TensorSpec("x", fp32, (1,), (-1, 1))},
        outputs={"y": TensorSpec("y", fp32, (1,), (-1, 1))},
        instance_groups=(InstanceGroupSpec("m", "KIND_CPU", 1),),
        batching=BatchingSpec((ROWS,), 0),
    )
    policy = QueuePolicySpec(timeout_ns=HOUR_NS, allows_override=True)
    return made if kind == "plain" else replace(made, queue=QueueSpec(3, 2, policy))


async def _once(kind: str, end: str, count: int) -> float:
    """Microseconds for each of ``count`` requests."""
    backend, spec = _Gated(), _spec(kind)
    model = LoadedModel(spec, 1, backend, asyncio.get_running_loop())
    model.start()
    options = [
        RequestOptions(("y",), 1, (("x", (1,)),), priority=1 + i, timeout_us=3_000_000_000 + i) for i in range(3)
    ]
    rows = np.zeros((1, 1), np.float32)
    # It keeps the instance busy.
    model.submit(_Silent(options[0], {"x": rows}, "", time.monotonic_ns()))
    await asyncio.sleep(0.01)
    requests = [_Silent(options[i % 3], {"x": rows}, "", time.monotonic_ns()) for i in range(count)]
    gc.collect()
    gc.disable()
    began = time.thread_time()
    for request in requests:
        model.submit(request)
    if end == "run":
        backend.gate.set()
        while model.in_flight:
            await asyncio.sleep(0)
    else:
        for request in requests if end == "forward" else reversed(requests):
            model.cancel(request)
    took = time.thread_time() - began
    gc.enable()
    backend.gate.set()
    while model.in_flight:
        await asyncio.sleep(0.001)
    model.close()
    model.detach()
    return took / count * 1e6


async def _measure(kind: str, end: str) -> dict[int, float]:
    return {count: min([await _once(kind, end, count) for _ in range(ROUNDS)]) for count in COUNTS}


def main() -> None:
    """Print the curve that the arguments name."""
    import uvloop

    logging.getLogger("naiad").setLevel(logging.CRITICAL)
    kind, end = sys.argv[1:]
    print(json.dumps(uvloop.run(_measure(kind, end))))


if __name__ == "__main__":
    main()
