"""The latencies of the requests since somebody looked last, for what follows them closely."""

from __future__ import annotations

from naiad.telemetry.metrics.quantiles import Counts, Values, counts_of, no_counts


class LatencyCounts:
    """Counts latencies until they are taken. Belongs to the event loop.

    Args:
        limit_us: requests that take longer, in microseconds, are counted apart.
    """

    __slots__ = ("_counts", "_late", "_limit_us")

    def __init__(self, limit_us: float) -> None:
        self._limit_us = limit_us
        self._counts = no_counts()
        self._late = 0

    def add(self, values: Values) -> None:
        """Count latencies in microseconds."""
        self._counts += counts_of(values)
        self._late += int((values > self._limit_us).sum())

    def take(self) -> tuple[Counts, int]:
        """The latencies by bucket and how many were above the limit; both begin again from zero."""
        taken = self._counts, self._late
        self._counts, self._late = no_counts(), 0
        return taken
