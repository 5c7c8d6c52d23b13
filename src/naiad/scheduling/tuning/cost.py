"""What a batch costs, fitted to the batches that ran, and what follows from it for a setup that was not tried.

A batch of n rows takes a + b n seconds, with a and b of their own for each number of instances and threads, as these
share the cores. Under a load with N rows in the server each of k instances runs batches of about N / (k + 1) rows, or
of N / k rows where requests wait for others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from naiad.scheduling.tuning.setup import TunedSetup

_SCALING: Final = 0.5
"""How much of the model's time is expected to grow with the threads that share a core, or to shrink with more threads,
as a power, before anything was measured: between not at all and in proportion."""
_FADING: Final = 0.8
"""What the runs counted before weigh when more come: a model may get other inputs."""


@dataclass(slots=True)
class BatchCost:
    """Seconds of a batch: ``fixed_s + row_s * rows``."""

    fixed_s: float
    row_s: float

    def seconds(self, rows: float) -> float:
        """Of a batch with so many rows."""
        return self.fixed_s + self.row_s * rows


class CostModel:
    """The costs of the batches of a model by its instances and threads.

    Args:
        cores: which all threads share.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._runs: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}

    def note(self, setup: TunedSetup, batches: Mapping[int, tuple[int, float]]) -> None:
        """Count batches that ran in a setup: by their rows, how many and their seconds."""
        known = self._runs.setdefault((setup.instances, setup.threads), {})
        faded = {rows: (runs * _FADING, seconds * _FADING) for rows, (runs, seconds) in known.items()}
        for rows, (runs, seconds) in batches.items():
            before = faded.get(rows, (0.0, 0.0))
            faded[rows] = before[0] + runs, before[1] + seconds
        self._runs[setup.instances, setup.threads] = {rows: found for rows, found in faded.items() if found[0] > 0.01}

    def cost(self, setup: TunedSetup) -> BatchCost | None:
        """The cost of a batch in a setup; None while nothing ran."""
        own = self._runs.get((setup.instances, setup.threads))
        if own:
            return _fitted(own)
        if not self._runs:
            return None
        # The nearest setup that was measured, with the load of the cores as it would be.
        key = min(self._runs, key=lambda k: (abs(k[0] - setup.instances), abs(k[1] - setup.threads)))
        cost = _fitted(self._runs[key])
        crowding = self._crowding(setup.instances, setup.threads) / self._crowding(*key)
        threads = max(key[1], 1) / max(setup.threads, 1)
        scale = (crowding * threads) ** _SCALING
        return BatchCost(cost.fixed_s * scale, cost.row_s * scale)

    def _crowding(self, instances: int, threads: int) -> float:
        return max(1.0, instances * max(threads, 1) / self._cores)

    def expected(self, setup: TunedSetup, rows: float) -> tuple[float, float] | None:
        """Throughput in rows a second and the mean latency in seconds under a load.

        Args:
            rows: that are in the server on average.
        """
        cost = self.cost(setup)
        if cost is None:
            return None
        # Without a delay an instance takes what has come while it ran: there is one more group of requests than
        # instances, which waits. With a delay, callers that follow up their responses join the next batch.
        groups = setup.instances if setup.delay_us else setup.instances + 1
        size = min(float(setup.max_rows), max(1.0, rows / groups))
        busy = min(float(setup.instances), max(rows, 1e-3) / size)
        waits = setup.delay_us / 1e6 if size < setup.max_rows else 0.0
        throughput = busy * size / max(cost.seconds(size) + waits, 1e-7)
        return throughput, max(rows, 1e-3) / throughput


def _fitted(runs: Mapping[int, tuple[float, float]]) -> BatchCost:
    """The least squares through the mean times, weighted by the runs; never a negative part."""
    sizes = np.array(sorted(runs), float)
    counts = np.array([runs[int(size)][0] for size in sizes])
    times = np.array([runs[int(size)][1] / runs[int(size)][0] for size in sizes])
    mean_size, mean_time = np.average(sizes, weights=counts), np.average(times, weights=counts)
    spread = float(np.average((sizes - mean_size) ** 2, weights=counts))
    if spread < 1e-9:
        # One size alone does not say which part is fixed: half of it, as good a guess as any.
        return BatchCost(mean_time / 2, mean_time / 2 / mean_size)
    slope = float(np.average((sizes - mean_size) * (times - mean_time), weights=counts)) / spread
    slope = min(max(slope, 0.0), mean_time / mean_size)
    return BatchCost(float(mean_time - slope * mean_size), slope)


BatchRuns = Mapping[int, tuple[int, float]]
"""Of each number of rows the batches that ran, and their seconds."""


def merged(first: BatchRuns, second: BatchRuns) -> dict[int, tuple[int, float]]:
    """The batches of both, by their rows."""
    found: defaultdict[int, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for counted in (first, second):
        for rows, (runs, seconds) in counted.items():
            found[rows] = found[rows][0] + runs, found[rows][1] + seconds
    return dict(found)
