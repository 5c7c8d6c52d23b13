"""What self-tuning can change about a model, and between which values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from naiad.scheduling.tuning.regression import Floats

_DELAYS_US: Final = (0, 200, 1_000, 4_000)
"""Queue delays that are tried, as far as the latency limit leaves room for them."""
_DELAY_PART: Final = 4
"""A delay takes at most one part in so many of the latency limit."""


@dataclass(frozen=True, slots=True)
class TunedSetup:
    """How a model runs.

    Attributes:
        instances: of its instance group.
        threads: of each instance in its framework; 0 where the server does not choose them.
        max_rows: the most rows of a batch.
        delay_us: how long a request waits for others.
    """

    instances: int
    threads: int
    max_rows: int
    delay_us: int

    def __str__(self) -> str:
        """In words, for the log and for explanations."""
        threads = f" of {self.threads} thread(s)" if self.threads else ""
        return f"{self.instances} instance(s){threads}, batches of up to {self.max_rows}, delay {self.delay_us} us"

    def same_instances(self, other: TunedSetup) -> bool:
        """Whether a change to ``other`` leaves the instances alone."""
        return (self.instances, self.threads) == (other.instances, other.threads)


@dataclass(frozen=True, slots=True)
class SetupLimits:
    """The bounds of the setups of a model.

    Attributes:
        configured: the setup of its configuration, which is always one of the setups.
        max_instances: the most instances.
        cores: of the server, which the threads of all instances share.
        moves_instances: whether the number of instances may change.
        moves_threads: whether the threads of an instance may change.
        batches: whether the model has dynamic batching. Others run each request by itself.
    """

    configured: TunedSetup
    max_instances: int
    cores: int
    moves_instances: bool = True
    moves_threads: bool = False
    batches: bool = True

    def setups(self, limit_ns: int) -> list[TunedSetup]:
        """All setups for a latency limit, the configured one first."""
        own = self.configured
        counts = range(1, self.max_instances + 1) if self.moves_instances else (own.instances,)
        sizes = sorted({own.max_rows, *_powers(own.max_rows)}) if self.batches else [own.max_rows]
        most_us = limit_ns // 1_000 // _DELAY_PART
        delays = sorted({own.delay_us, *(d for d in _DELAYS_US if d <= most_us)}) if self.batches else [own.delay_us]
        found = [
            TunedSetup(count, threads, size, delay)
            for count in counts
            for threads in self._threads(count)
            for size in sizes
            for delay in delays
            # A batch of one waits for nobody.
            if size > 1 or delay == delays[0]
        ]
        return [own, *(setup for setup in found if setup != own)]

    def _threads(self, count: int) -> list[int]:
        own = self.configured
        if not self.moves_threads or not self.moves_instances:
            return [own.threads]
        return sorted({1, max(1, self.cores // count)} | ({own.threads} if count == own.instances else set()))


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def setup_coordinates(setups: list[TunedSetup]) -> tuple[Floats, list[int]]:
    """The setups as rows of numbers from 0 to 1, and the dimension of each column."""
    columns = [
        np.array([math.log2(s.instances) for s in setups]),
        np.array([math.log2(max(s.threads, 1)) for s in setups]),
        np.array([math.log2(s.max_rows) for s in setups]),
        np.array([math.log1p(s.delay_us / 100) for s in setups]),
    ]
    scaled = [(column - column.min()) / max(float(np.ptp(column)), 1e-9) for column in columns]
    return np.stack(scaled, axis=1), [0, 1, 2, 3]
