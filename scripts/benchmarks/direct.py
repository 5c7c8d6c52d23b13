"""The baseline of serving: the frameworks called directly in a loop, in a process of their own.

``python -m benchmarks.direct onnx MODEL THREADS SECONDS`` and ``... torch MODEL BATCH SECONDS`` print one JSON line.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .figures import CaseError

SCRIPTS = Path(__file__).resolve().parent.parent
START_SECONDS = 120
WARM_UP_CALLS = 20


def call_directly(kind: str, model: Path, number: int, seconds: int) -> dict[str, float]:
    """Run this module in a child: ``rate`` in calls per second and ``median_us`` of one call.

    ``number`` is the count of threads for ``onnx`` and the rows of a batch, on one thread, for ``torch``.
    """
    command = [sys.executable, "-m", "benchmarks.direct", kind, str(model), str(number), str(seconds)]
    finished = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS + seconds,
        env=os.environ | {"PYTHONPATH": str(SCRIPTS)},
    )
    if finished.returncode:
        raise CaseError(f"calling {kind} directly failed: {finished.stderr[-2000:]}")
    result: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
    return result


def _onnx_call(model: str, threads: int) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    source = session.get_inputs()[0]
    feed = {source.name: np.random.default_rng(0).random(source.shape, np.float32)}
    return lambda: session.run(None, feed)


def _torch_call(model: str, rows: int) -> Callable[[], object]:
    import torch

    torch.set_num_threads(1)
    module = torch.jit.load(model).eval()
    batch = torch.rand(rows, 1)

    def call() -> object:
        with torch.inference_mode():
            return module(batch)

    return call


def time_calls(call: Callable[[], object], seconds: float) -> dict[str, float]:
    """Call in a loop for ``seconds``, after a warm-up: ``rate`` in calls per second, ``median_us`` and ``p95_us``."""
    warm_up_end = time.perf_counter() + seconds / 2
    for _ in range(WARM_UP_CALLS):
        call()
        if time.perf_counter() > warm_up_end:
            break
    times: list[float] = []
    began = before = time.perf_counter()
    while before - began < seconds:
        call()
        now = time.perf_counter()
        times.append(now - before)
        before = now
    p95 = sorted(times)[int(0.95 * len(times))]
    return {"rate": len(times) / (before - began), "median_us": statistics.median(times) * 1e6, "p95_us": p95 * 1e6}


def main() -> None:
    """KIND MODEL NUMBER SECONDS."""
    kind, model, number, seconds = sys.argv[1:5]
    make = {"onnx": _onnx_call, "torch": _torch_call}[kind]
    print(json.dumps(time_calls(make(model, int(number)), float(seconds))))


if __name__ == "__main__":
    main()
