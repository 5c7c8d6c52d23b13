"""Counters of a model version that another process has counted: taken there, and added here.

Only what a plain model counts is moved, and its recent latencies: no cache, no responses by their places, no
distributions.
"""

from __future__ import annotations

from typing import Any, Final

from naiad.telemetry.metrics.model_statistics import BatchStatistics, Duration, ModelStatistics
from naiad.telemetry.metrics.recent_latencies import RecentLatencies

_DURATIONS: Final = ("success", "failure", "queue", "compute_input", "compute_infer", "compute_output")
_OF_BATCH: Final = ("compute_input", "compute_infer", "compute_output")

Counts = tuple[Any, ...]
"""Plain tuples, dicts and numbers, which any serialisation takes."""


def take_counts(statistics: ModelStatistics) -> Counts | None:
    """What has been counted since the last call, which begins anew; None for nothing."""
    if not (statistics.success.count or statistics.failure.count or statistics.execution_count):
        return None
    durations = [_take(getattr(statistics, name)) for name in _DURATIONS]
    batches = {rows: [_take(getattr(batch, name)) for name in _OF_BATCH] for rows, batch in statistics.batches.items()}
    left = {reason: dict(by_rows) for reason, by_rows in statistics.left.items()}
    plain = statistics.inference_count, statistics.execution_count, statistics.last_inference_ms
    latencies = statistics.latencies
    recent = latencies.take() if isinstance(latencies, RecentLatencies) else []
    counts = durations, dict(statistics.failures), batches, left, plain, recent
    statistics.failures.update(dict.fromkeys(statistics.failures, 0))
    statistics.batches.clear()
    statistics.left.clear()
    statistics.inference_count = statistics.execution_count = 0
    return counts


def add_counts(statistics: ModelStatistics, counts: Counts) -> int:
    """Add what ``take_counts`` gave elsewhere; returns how many requests that were."""
    durations, failures, batches, left, (inferences, executions, last_ms), recent = counts
    for name, (count, ns) in zip(_DURATIONS, durations, strict=True):
        getattr(statistics, name).add(count, ns)
    for reason, count in failures.items():
        statistics.failures[reason] = statistics.failures.get(reason, 0) + count
    for rows, found in batches.items():
        batch = statistics.batches.get(rows)
        if batch is None:
            batch = statistics.batches[rows] = BatchStatistics()
        for name, (count, ns) in zip(_OF_BATCH, found, strict=True):
            getattr(batch, name).add(count, ns)
    for reason, by_rows in left.items():
        for rows, count in by_rows.items():
            statistics.left[reason][rows] += count
    statistics.inference_count += inferences
    statistics.execution_count += executions
    statistics.last_inference_ms = max(statistics.last_inference_ms, last_ms)
    if isinstance(statistics.latencies, RecentLatencies):
        statistics.latencies.add(recent)
    succeeded, failed = durations[0][0], durations[1][0]
    return int(succeeded + failed)


def _take(duration: Duration) -> tuple[int, int]:
    found = duration.count, duration.ns
    duration.count = duration.ns = 0
    return found
