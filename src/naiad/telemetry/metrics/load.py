"""How loaded models are: the share of their instances' time that is in use, and the batches that wait.

For autoscalers: below 1 the instances have time left, above 1 requests wait.
"""

from __future__ import annotations

from collections import deque
from time import monotonic_ns
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from naiad.telemetry.metrics.model_statistics import ModelStatistics

WINDOW_NS: Final = 15 * 1_000_000_000
"""The load is that of about this time, or of the time since the scrape before where these are further apart."""
_MAX_SAMPLES: Final = 64


class _Sample(NamedTuple):
    at_ns: int
    busy_ns: int
    rows: int
    runs: int


class LoadFigures:
    """Reads the load from the counters, at each scrape."""

    def __init__(self) -> None:
        self._samples: WeakKeyDictionary[ModelStatistics, deque[_Sample]] = WeakKeyDictionary()

    def read(self, statistics: ModelStatistics, instances: int) -> float:
        """The load of a model version with ``instances``, 0 without any."""
        if not instances:
            return 0.0
        now = _sample(statistics)
        samples = self._samples.setdefault(statistics, deque(maxlen=_MAX_SAMPLES))
        # The last sample of before the window is where it begins.
        while len(samples) > 1 and now.at_ns - samples[1].at_ns >= WINDOW_NS:
            samples.popleft()
        before = samples[0] if samples else _Sample(now.at_ns - WINDOW_NS, 0, 0, 0)
        # Scrapes in quick succession, of several scrapers, share one sample.
        if not samples or now.at_ns - samples[-1].at_ns >= WINDOW_NS // _MAX_SAMPLES:
            samples.append(now)
        passed_ns = max(1, now.at_ns - before.at_ns)
        busy = min(1.0, (now.busy_ns - before.busy_ns) / (passed_ns * instances))
        runs = now.runs - before.runs
        rows_per_run = max(1.0, (now.rows - before.rows) / runs) if runs else 1.0
        return round(busy + statistics.pending / rows_per_run / instances, 4)


def busy_ns(statistics: ModelStatistics) -> int:
    """The time that the instances of a version were running, all together."""
    return sum(b.compute_input.ns + b.compute_infer.ns + b.compute_output.ns for b in statistics.batches.values())


def _sample(statistics: ModelStatistics) -> _Sample:
    rows = sum(size * found.compute_infer.count for size, found in statistics.batches.items())
    return _Sample(monotonic_ns(), busy_ns(statistics), rows, statistics.execution_count)
