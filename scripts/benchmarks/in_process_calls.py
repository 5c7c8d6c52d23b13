"""Requests of 16 floats to ``naiad.Server`` in a process of its own.

``python -m benchmarks.in_process_calls small SECONDS`` and ``... workers COUNT SECONDS`` print one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import naiad
from naiad.inprocess.model import Model
from naiad.inprocess.server import Server

IN_FLIGHT = 16
SPINS = 200_000
X = np.arange(16, dtype=np.float32)
CONFIG = """
backend: "identity"
input [ { name: "x" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 16 ] } ]
"""


def small(seconds: float) -> dict[str, float]:
    """Latencies in microseconds and rates per second, by name."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "echo"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(CONFIG)
        server = Server(folder)
        server.bind("doubler", doubler)
        with server:
            found = _measure("", server.model("echo"), "y", X, seconds)
            return found | _measure("function_", server.model("doubler"), "output", 2 * X, seconds)


def workers(count: int, seconds: float) -> dict[str, float]:
    """The rate of a function that computes in Python, in so many processes."""
    server = Server()
    server.bind("spin", spin, instances=count, workers="process")
    with server:
        model = server.model("spin")
        _check(next(model.infer(inputs={"x": X})).outputs["output"].numpy(), X)
        return {"per_s": asyncio.run(_rate(model, "output", X, seconds))}


def spin(x: naiad.FP32[16]) -> naiad.FP32[16]:  # type: ignore[valid-type]
    """Its input, after some milliseconds of Python."""
    total = 0
    for number in range(SPINS):
        total += number
    return x + 0 * total


def doubler(x: naiad.FP32[16]) -> naiad.FP32[16]:  # type: ignore[valid-type]
    """Twice its input."""
    return 2 * x


def _measure(prefix: str, model: Model, output: str, expected: Any, seconds: float) -> dict[str, float]:
    inputs = {"x": X}
    for _ in range(100):
        _check(next(model.infer(inputs=inputs)).outputs[output].numpy(), expected)
    times: list[int] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter_ns()
        next(model.infer(inputs=inputs))
        times.append(time.perf_counter_ns() - begun)
    rate = asyncio.run(_rate(model, output, expected, seconds))
    return {f"{prefix}median_us": float(np.median(times)) / 1e3, f"{prefix}per_s": rate}


async def _rate(model: Model, output: str, expected: Any, seconds: float) -> float:
    """Answers in a second, ``IN_FLIGHT`` requests at a time."""
    end = time.perf_counter() + seconds
    counts = [0] * IN_FLIGHT

    async def ask(caller: int) -> None:
        inputs = {"x": X}
        while time.perf_counter() < end:
            async for response in model.async_infer(inputs=inputs):
                _check(response.outputs[output].numpy(), expected)
            counts[caller] += 1

    begun = time.perf_counter()
    await asyncio.gather(*(ask(caller) for caller in range(IN_FLIGHT)))
    return sum(counts) / (time.perf_counter() - begun)


def _check(found: Any, expected: Any) -> None:
    if found[15] != expected[15]:
        raise SystemExit(f"found {found}, expected {expected}")


if __name__ == "__main__":
    kind, *numbers = sys.argv[1:]
    print(json.dumps(small(float(numbers[0])) if kind == "small" else workers(int(numbers[0]), float(numbers[1]))))
