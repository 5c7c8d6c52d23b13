"""The models of the case ``slo``: batches that take time on stand-ins for devices, and a network on the processor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from . import models
from .infer import Request, binary_request

MAX_BATCH: Final = 16
INSTANCES: Final = 4
_WIDTH: Final = 1024
_SLEEPS: Final = """
import fcntl, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.device = open("{lock}", "w") if "{lock}" else None

    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        rows = sum(map(len, tensors))
        if self.device:
            fcntl.flock(self.device, fcntl.LOCK_EX)
        time.sleep(({cost}) / 1000)
        if self.device:
            fcntl.flock(self.device, fcntl.LOCK_UN)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in tensors]
"""


@dataclass(frozen=True, slots=True)
class TunedCase:
    """A model, its latency limit and its load.

    Attributes:
        callers: that send one request after another; four times as many after the step.
        cost: the milliseconds of a batch of a Python model; "" for another model.
        shares_device: its instances run one after the other.
        has_threads: instances have threads of their own.
    """

    name: str
    limit_ms: int
    callers: int
    cost: str = ""
    shares_device: bool = False
    has_threads: bool = False

    def request(self) -> Request:
        """One row."""
        width = _WIDTH if self.has_threads else 16
        return binary_request(self.name, {"x": np.random.default_rng(0).random((1, width), np.float32)}, "y")

    def setups(self) -> Iterator[Mapping[str, Any]]:
        """The configurations that are measured one by one: the fields that change."""
        counts = ((1, 2), (1, 1), (2, 1)) if self.has_threads else tuple((count, 0) for count in (1, 2, INSTANCES))
        for (count, threads), rows, delay in product(counts, (1, 4, MAX_BATCH), (0, 1000)):
            if rows == 1 and delay:
                continue
            found: dict[str, Any] = {
                "max_batch_size": rows,
                "dynamic_batching": {"max_queue_delay_microseconds": delay},
                "instance_group": [{"kind": "KIND_CPU", "count": count}],
            }
            if threads:
                found["parameters"] = {"intra_op_thread_count": {"string_value": str(threads)}}
            yield found


CASES: Final = (
    TunedCase("sleeping", 200, 8, "4"),
    TunedCase("rows", 300, 6, "2.5 * rows"),
    TunedCase("one_device", 250, 8, "3 + 0.4 * rows", shares_device=True),
    TunedCase("saturating", 250, 8, "2 + 0.25 * rows if rows <= 8 else 0.09 * rows * rows"),
    TunedCase("network", 250, 4, has_threads=True),
)
"""The limits leave room for the stalls of a machine that does other things as well."""


def add_tuned_model(repository: Path, case: TunedCase) -> None:
    """Write a model: one instance, batches of up to 16, no delay."""
    width = _WIDTH if case.has_threads else 16
    version = models.add_model(
        repository,
        case.name,
        'platform: "onnxruntime_onnx"' if case.has_threads else 'backend: "python"',
        f"max_batch_size: {MAX_BATCH}",
        models.tensor_field("input", "x", "TYPE_FP32", [width]),
        models.tensor_field("output", "y", "TYPE_FP32", [16]),
        "dynamic_batching { }",
        "instance_group [ { kind: KIND_CPU count: 1 } ]",
    )
    if not case.has_threads:
        lock = repository.parent / f"{case.name}.lock" if case.shares_device else ""
        (version / "model.py").write_text(_SLEEPS.format(lock=lock, cost=case.cost))
        return
    random = np.random.default_rng(0)
    sizes = (width, width, width, 16)
    names = [f"layer{number}" for number in range(len(sizes) - 1)]
    weights = {
        f"w_{name}": (random.random((before, after), np.float32) - 0.5) / 16
        for name, before, after in zip(names, sizes, sizes[1:], strict=False)
    }
    nodes = [("MatMul", [before, f"w_{name}"], name) for before, name in zip(("x", *names), names, strict=False)]
    nodes.append(("Relu", [names[-1]], "y"))
    models.save_graph(version / "model.onnx", [("x", "FLOAT", ["rows", width])], nodes, weights, "y")
