"""What a model did while it ran in one setup, as its counters say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from naiad.scheduling.tuning.cost import merged
from naiad.telemetry.metrics.quantiles import Counts, no_counts, value_at


@dataclass(frozen=True, slots=True)
class TuningSample:
    """The counters of some time, as differences.

    Attributes:
        seconds: how long it was.
        requests: how many requests succeeded.
        rows: their rows.
        request_s: the seconds that these requests were in the server, all together.
        late: how many of them took longer than the latency limit.
        open: how many had no response at the end.
        latencies: their latencies in microseconds, counted by bucket.
        batches: of each number of rows the batches that ran, and their seconds.
    """

    seconds: float = 0.0
    requests: int = 0
    rows: int = 0
    request_s: float = 0.0
    late: int = 0
    open: int = 0
    latencies: Counts = field(default_factory=no_counts)
    batches: Mapping[int, tuple[int, float]] = field(default_factory=dict)

    def __add__(self, other: TuningSample) -> TuningSample:
        """Both, one after the other."""
        return TuningSample(
            self.seconds + other.seconds,
            self.requests + other.requests,
            self.rows + other.rows,
            self.request_s + other.request_s,
            self.late + other.late,
            other.open,
            np.add(self.latencies, other.latencies),
            merged(self.batches, other.batches),
        )

    @property
    def in_flight(self) -> float:
        """The mean number of requests in the server (Little's law)."""
        return self.request_s / self.seconds if self.seconds else 0.0

    @property
    def request_rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds if self.seconds else 0.0

    @property
    def throughput(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def mean_s(self) -> float:
        """The mean latency of a request in seconds."""
        return self.request_s / self.requests if self.requests else 0.0

    @property
    def late_part(self) -> float:
        """The part of the requests that took longer than the limit."""
        return self.late / self.requests if self.requests else 0.0

    def quantile_s(self, share: float) -> float:
        """The latency at a share of the requests, in seconds; NaN without requests."""
        return value_at(self.latencies, share) / 1e6
