"""The measurements that are still to come, as far as a search knows, for an estimate of the time they take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """Measurements to come. Parts of them, where a search may end before.

    Attributes:
        count: how many there are.
        scales: the length of their windows, all together, in shortest windows.
        changes: how many of them begin with a change of the configuration.
    """

    count: float = 0.0
    scales: float = 0.0
    changes: float = 0.0

    @staticmethod
    def of(count: float, scale: int, changes: float | None = None) -> WorkLeft:
        """So many measurements of one length; each has another configuration unless ``changes`` says how many have."""
        return WorkLeft(count, count * scale, count if changes is None else changes)

    def __add__(self, other: WorkLeft) -> WorkLeft:
        """The measurements of both together."""
        return WorkLeft(self.count + other.count, self.scales + other.scales, self.changes + other.changes)

    def __mul__(self, times: float) -> WorkLeft:
        """The measurements of so many searches that are alike."""
        return WorkLeft(self.count * times, self.scales * times, self.changes * times)


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
