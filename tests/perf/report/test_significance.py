"""The test of Mann and Whitney and Holm's correction, against counting and against chance."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from naiad.perf.report.significance import holm, least_p, mann_whitney


def counted(first: list[float], second: list[float]) -> float:
    """The value by going through every way to deal the values to two samples."""
    values = sorted([*first, *second])
    ranks = {value: np.mean([place for place, other in enumerate(values, 1) if other == value]) for value in values}
    everything = [ranks[value] for value in (*first, *second)]
    sums = np.array([sum(chosen) for chosen in itertools.combinations(everything, len(first))])
    observed = sum(ranks[value] for value in first)
    tail = min((sums <= observed + 1e-9).mean(), (sums >= observed - 1e-9).mean())
    return float(min(2 * tail, 1.0))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1, 2, 3], [4, 5, 6]),
        ([1, 2, 9], [4, 5, 6]),
        ([1, 1, 2, 2], [2, 3, 3]),
        ([5, 5, 5, 5, 1], [5, 5, 6, 7, 8, 5]),
        ([10.5, 11, 9, 30, 12], [31, 32, 29, 33]),
        ([1], [2]),
    ],
)
def test_small_samples_are_exact(first: list[float], second: list[float]) -> None:
    assert mann_whitney(first, second) == pytest.approx(counted(first, second), rel=1e-9)
    assert mann_whitney(second, first) == pytest.approx(counted(first, second), rel=1e-9)


def test_known_values() -> None:
    assert mann_whitney([1, 2, 3], [4, 5, 6]) == pytest.approx(0.1)
    assert mann_whitney([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(2 / 70)


def test_what_cannot_be_tested_is_no_difference() -> None:
    assert mann_whitney([], [1, 2]) == 1
    assert mann_whitney([7] * 5, [7] * 9) == 1
    assert mann_whitney([7] * 50, [7] * 90) == 1


def test_large_samples_go_on_where_small_ones_end() -> None:
    """Thirty values each are counted, thirty-one approximated: about the same samples give about the same value."""
    noise = np.random.default_rng(1)
    first, second = noise.normal(0, 1, 31).tolist(), noise.normal(0.5, 1, 31).tolist()
    assert mann_whitney(first, second) == pytest.approx(mann_whitney(first[:30], second[:30]), rel=0.5)


@pytest.mark.parametrize("size", [12, 40])
def test_chance_alone_is_rarely_significant(size: int) -> None:
    noise = np.random.default_rng(2)
    found = [mann_whitney(noise.exponential(1, size), noise.exponential(1, size)) for _ in range(400)]
    assert 0.02 < np.mean(np.array(found) < 0.05) < 0.08


@pytest.mark.parametrize("size", [12, 40])
def test_a_difference_is_seen_in_spite_of_outliers(size: int) -> None:
    noise = np.random.default_rng(3)
    slow, fast = noise.normal(100, 2, size), noise.normal(105, 2, size)
    fast[0] = 1
    assert mann_whitney(slow, fast) < 0.01


def test_the_least_value_of_few_values() -> None:
    assert least_p(3, 3) == pytest.approx(0.1)
    assert least_p(4, 4) == pytest.approx(2 / 70)
    assert least_p(1, 1) == 1


def test_many_tests_are_corrected() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([]) == []
