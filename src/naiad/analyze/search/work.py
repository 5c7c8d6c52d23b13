"""The measurements that are still to come, as far as a search knows, for an estimate of the time they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """Measurements to come. Parts of them, where a search may end before.

    Attributes:
        counts: how many there are, by the length of their windows in shortest windows.
        changes: how many of them begin with a change of the configuration.
    """

    counts: Mapping[int, float] = field(default_factory=dict)
    changes: float = 0.0

    @staticmethod
    def of(count: float, scale: int, changes: float | None = None) -> WorkLeft:
        """So many measurements of one length; each has another configuration unless ``changes`` says how many have."""
        return WorkLeft({scale: count}, count if changes is None else changes)

    @property
    def count(self) -> float:
        """How many there are."""
        return sum(self.counts.values())

    def __add__(self, other: WorkLeft) -> WorkLeft:
        """The measurements of both together."""
        counts = dict(self.counts)
        for scale, count in other.counts.items():
            counts[scale] = counts.get(scale, 0.0) + count
        return WorkLeft(counts, self.changes + other.changes)

    def __mul__(self, times: float) -> WorkLeft:
        """The measurements of so many searches that are alike."""
        return WorkLeft({scale: count * times for scale, count in self.counts.items()}, self.changes * times)


NOTHING = WorkLeft()


def trials_left(done: int, idle: int, least: int, most: int, most_idle: int) -> float:
    """How many trials are to be expected of a search that ends when nothing better was found for a while.

    The next trial is the best of all so far with a probability of one in as many: so it is for values in random order.

    Args:
        done: trials so far.
        idle: how many of them came after the best.
        least, most: how many there are in any case, and at most.
        most_idle: after how many idle ones it ends.
    """
    # By the number of idle trials, from the last possible trial back to the next one.
    expected = [0.0] * (most_idle + 1)
    for number in range(most - 1, done - 1, -1):
        found = [0.0] * (most_idle + 1)
        for since in range(most_idle + 1):
            if since >= most_idle and number >= least:
                continue
            better = 1 / (number + 1)
            found[since] = 1 + better * expected[0] + (1 - better) * expected[min(since + 1, most_idle)]
        expected = found
    return expected[min(idle, most_idle)]
