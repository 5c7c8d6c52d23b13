"""Reports of ``naiad perf`` made by hand, for tests of how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from naiad.perf.histogram import DurationHistogram
from naiad.perf.results import LevelResult, LoadLevel, LoadMode, Report, ServerParts, Window

BEGAN_NS = 1_795_423_730_000_000_000


def histogram(us: Sequence[float]) -> DurationHistogram:
    """Durations in microseconds."""
    found = DurationHistogram()
    found.add_all(np.array([duration * 1000 for duration in us], np.int64))
    return found


def window(latencies_us: Sequence[float], duration_s: float = 2.0, began_ns: int = BEGAN_NS, **more: Any) -> Window:
    """A window whose requests were sent in 20 us, and received in 5 us, each."""
    count = len(latencies_us)
    total_ns = int(sum(latencies_us) * 1000)
    given = {
        "requests": count,
        "responses": count,
        "sent": count,
        "latency": histogram(latencies_us),
        "send_ns": 20_000 * count,
        "wait_ns": total_ns - 25_000 * count,
        "receive_ns": 5_000 * count,
    }
    return Window(began_ns, began_ns + int(duration_s * 1e9), **{**given, **more})


def parts(model: str = "simple", requests: int = 100, executions: int | None = None, **us: Any) -> ServerParts:
    """What a server counted: each request took so many microseconds in all, in the queue, and in the model.

    Keyword Args:
        request, queue, given, infer, output: microseconds of each request.
        more: further attributes.
    """
    times = {"request": 100, "queue": 30, "given": 4, "infer": 50, "output": 6} | us
    more = times.pop("more", {})
    fields = {"given": "compute_input_ns", "infer": "compute_infer_ns", "output": "compute_output_ns"}
    sums = {fields.get(name, f"{name}_ns"): int(value * 1000 * requests) for name, value in times.items()}
    counts = {"inferences": requests, "executions": executions or requests, "successes": requests}
    return ServerParts(model, "1", **{**counts, **sums, **more})


def level(
    value: float, merged: Window, mode: LoadMode = LoadMode.CONCURRENCY, batch_size: int = 1, **more: Any
) -> LevelResult:
    """One level; its windows are ``merged`` three times unless given."""
    return LevelResult(LoadLevel(mode, value), batch_size, merged, **{"windows": [merged] * 3, **more})


def report(*levels: LevelResult, **more: Any) -> Report:
    """A report of the model ``simple``."""
    return Report(list(levels), **{"model": "simple", "version": "1", **more})
