"""Counts of durations at a fixed relative precision, so that hours of requests take a fixed amount of memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

_PRECISION_BITS: Final = 10
"""A bucket is at most 1/1024 of its value wide."""
_MOST_IN_PLACE: Final = 2**31 - 1
"""The most that a count may have to be counted up where it is: more needs wider counts."""


class DurationHistogram:
    """Durations in nanoseconds, each counted in a bucket that is at most 0.1% of its value wide.

    Durations below 2,048 ns are counted exactly, negative ones as 0. Count, sum, mean, deviation, least and greatest
    are exact; percentiles are the middle of their bucket, held within the least and greatest.
    """

    __slots__ = ("_counts", "_indices", "_square_sum", "count", "greatest", "least", "total")

    def __init__(self) -> None:
        # Arrays, in the order of the indices: a run keeps a histogram for each window, and a dict takes ten times more.
        self._indices = np.empty(0, np.int32)
        self._counts: np.ndarray[Any, Any] = np.empty(0, np.int32)
        self._square_sum = 0.0
        self.count = 0
        self.total = 0
        """The sum in ns."""
        self.least = 0
        self.greatest = 0

    def add(self, duration_ns: int) -> None:
        """Count one duration."""
        duration = max(duration_ns, 0)
        index = _index(duration)
        # Of the same type: the array would be converted.
        at = int(self._indices.searchsorted(np.int32(index)))
        # In place, as nearly always once there are some: merging arrays takes a hundred times as long.
        if at < self._indices.size and self._indices[at] == index and self._counts[at] < _MOST_IN_PLACE:
            self._counts[at] += 1
        else:
            self._add_buckets(np.array([index]), np.array([1]))
        self._note(1, duration, duration, duration, float(duration) ** 2)

    def add_all(self, durations_ns: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Count an array of durations of any shape."""
        if not durations_ns.size:
            return
        durations = np.maximum(durations_ns.astype(np.int64, copy=False).ravel(), 0)
        # frexp gives the exponent e with 2**(e-1) <= x < 2**e, exactly for everything below 2**53 ns (104 days).
        shift = np.maximum(np.frexp(durations.astype(np.float64))[1] - 1 - _PRECISION_BITS, 0).astype(np.int64)
        indices = (shift << _PRECISION_BITS) + (durations >> shift)
        found, counts = np.unique(indices, return_counts=True)
        self._add_buckets(found, counts)
        square_sum = float(np.square(durations.astype(np.float64)).sum())
        self._note(durations.size, int(durations.sum()), int(durations.min()), int(durations.max()), square_sum)

    def _note(self, count: int, total: int, least: int, greatest: int, square_sum: float) -> None:
        """Note what is exact of durations that were counted."""
        self.least = min(self.least, least) if self.count else least
        self.greatest = max(self.greatest, greatest)
        self.count += count
        self.total += total
        self._square_sum += square_sum

    def _add_buckets(self, indices: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]) -> None:
        """Add counts by ascending indices."""
        if not self._indices.size:
            self._indices, self._counts = indices.astype(np.int32), _compact(counts)
            return
        both = np.concatenate((self._indices, indices.astype(np.int32)))
        # Stable: a sort that makes use of the order that each part has.
        order = both.argsort(kind="stable")
        both = both[order]
        firsts = np.flatnonzero(np.diff(both, prepend=-1))
        sums = np.add.reduceat(np.concatenate((self._counts, counts))[order], firsts, dtype=np.int64)
        self._indices, self._counts = both[firsts], _compact(sums)

    def merge(self, other: DurationHistogram) -> None:
        """Count everything that ``other`` has counted."""
        if not other.count:
            return
        self._add_buckets(other._indices, other._counts)
        self._note(other.count, other.total, other.least, other.greatest, other._square_sum)

    @property
    def mean(self) -> float:
        """The mean in ns; 0 when nothing was counted."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the sample in ns; 0 for fewer than two durations."""
        if self.count < 2:
            return 0.0
        return math.sqrt(max(self._square_sum - self.count * self.mean**2, 0.0) / (self.count - 1))

    def percentile(self, percent: float) -> float:
        """The duration in ns that stands at ``percent`` (0 to 100) of the sorted ones; 0 when nothing was counted.

        Its place in the sorted list is ``int(percent / 100 * (count - 1) + 0.5)``, as the reference counts it.
        """
        if not self.count:
            return 0.0
        place = int(percent / 100 * (self.count - 1) + 0.5)
        at = int(np.searchsorted(np.cumsum(self._counts), place, side="right"))
        low, width = _bounds(int(self._indices[min(at, self._indices.size - 1)]))
        return min(max(low + (width - 1) / 2, self.least), self.greatest)

    def state(self) -> dict[str, Any]:
        """Everything that was counted, as plain values: each bucket as its least duration in ns and its count."""
        return {
            "count": self.count,
            "total_ns": self.total,
            "square_sum": self._square_sum,
            "least_ns": self.least,
            "greatest_ns": self.greatest,
            "buckets": [[low, count] for low, _, count in self.buckets()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> DurationHistogram:
        """The histogram whose ``state`` this is.

        Raises:
            ValueError: the counts do not add up.
            KeyError, TypeError: parts are missing, or are no numbers.
        """
        made = cls()
        indices: list[int] = []
        counts: list[int] = []
        for low, count in sorted(state["buckets"]):
            indices.append(_index(int(low)))
            counts.append(int(count))
        made._add_buckets(np.array(indices, np.int32), np.array(counts, np.int64))
        made.count, made.total = int(state["count"]), int(state["total_ns"])
        made.least, made.greatest = int(state["least_ns"]), int(state["greatest_ns"])
        made._square_sum = float(state["square_sum"])
        counted = sum(counts)
        if counted != made.count:
            raise ValueError(f"its buckets hold {counted} durations, its count is {made.count}")
        return made

    def buckets(self) -> Iterator[tuple[int, int, int]]:
        """Least duration in ns, width in ns and count of each bucket that is not empty, in ascending order."""
        for index, count in zip(self._indices.tolist(), self._counts.tolist(), strict=True):
            yield *_bounds(index), count


def _index(duration_ns: int) -> int:
    """The bucket of a duration; ``add_all`` has the same for arrays."""
    shift = max(duration_ns.bit_length() - 1 - _PRECISION_BITS, 0)
    return (shift << _PRECISION_BITS) + (duration_ns >> shift)


def _bounds(index: int) -> tuple[int, int]:
    """The least duration and the width of a bucket in ns."""
    # Above the exact range an index holds the shift plus the top bit of its value: both add up.
    shift = max((index >> _PRECISION_BITS) - 1, 0)
    return (index - (shift << _PRECISION_BITS)) << shift, 1 << shift


def _compact(counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Counts in four bytes each, as long as they fit."""
    return counts.astype(np.int32 if counts.size and int(counts.max()) < 2**31 else np.int64)
