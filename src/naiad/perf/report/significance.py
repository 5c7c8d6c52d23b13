"""Whether two samples differ by more than chance: the test of Mann and Whitney, and Holm's correction for many tests.

The test compares ranks, not means. Rates and latencies of single seconds are skewed and have outliers, which would
rule a test on means; ranks need no assumption about the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

_EXACT_SIZE: Final = 60
"""Up to so many values in both samples together every arrangement is counted; beyond them a normal curve is close."""


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """How likely samples that differ at least as much are, if both come from one distribution: two-sided, 0 to 1.

    Equal values share their ranks. 1 when a sample is empty, or all values are equal.
    """
    sizes = len(first), len(second)
    ranks = _ranks([*first, *second])
    if not all(sizes) or len(set(ranks)) == 1:
        return 1.0
    observed = sum(ranks[: sizes[0]])
    if sum(sizes) <= _EXACT_SIZE:
        return _exact(ranks, sizes[0], observed)
    return _approximate(ranks, sizes, observed)


def least_p(first_size: int, second_size: int) -> float:
    """The least value that the test can give for samples of these sizes: all of one are below those of the other."""
    return min(2 / math.comb(first_size + second_size, first_size), 1.0)


def holm(values: Sequence[float]) -> list[float]:
    """The values of several tests, corrected: among many tests some are below any limit by chance alone."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    corrected, highest = [0.0] * len(values), 0.0
    for done, place in enumerate(order):
        highest = max(highest, min((len(values) - done) * values[place], 1.0))
        corrected[place] = highest
    return corrected


def _ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, so that the shared ranks of equal values are whole numbers."""
    ordered = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(ordered, 1)))}
    last = {value: place for place, value in enumerate(ordered, 1)}
    return [first[value] + last[value] for value in values]


def _exact(ranks: Sequence[int], size: int, observed: int) -> float:
    """Count the choices of ``size`` ranks by their sum; floats hold the counts to 15 digits, which is plenty."""
    counts = np.zeros((size + 1, sum(ranks) + 1))
    counts[0, 0] = 1
    for rank in ranks:
        # The right side is a copy: each rank is chosen once at most.
        counts[1:, rank:] += counts[:-1, : counts.shape[1] - rank].copy()
    ways = counts[size]
    total = ways.sum()
    tail = min(ways[: observed + 1].sum(), ways[observed:].sum()) / total
    return min(2 * float(tail), 1.0)


def _approximate(ranks: Sequence[int], sizes: tuple[int, int], observed: int) -> float:
    """The normal curve, with corrections for equal values and for the steps of the sum."""
    count = len(ranks)
    mean = sizes[0] * (count + 1) / 2
    ties = sum(times**3 - times for times in np.unique(ranks, return_counts=True)[1].tolist())
    variance = sizes[0] * sizes[1] / 12 * (count + 1 - ties / (count * (count - 1)))
    if variance <= 0:
        return 1.0
    deviation = max(abs(observed / 2 - mean) - 0.5, 0.0) / math.sqrt(variance)
    return min(math.erfc(deviation / math.sqrt(2)), 1.0)
