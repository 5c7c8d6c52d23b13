"""Splits give exact proportions, evenly spread."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.scheduling.traffic.weighted_split import Fraction, WeightedSplit

WEIGHTS = st.lists(st.integers(1, 60), min_size=1, max_size=6)


@given(WEIGHTS, st.integers(0, 200))
def test_any_run_as_long_as_the_sum_has_each_item_as_often_as_it_weighs(weights: list[int], before: int) -> None:
    split = WeightedSplit(list(enumerate(weights)))
    for _ in range(before):
        split.take()
    assert Counter(split.take() for _ in range(sum(weights))) == dict(enumerate(weights))


@given(WEIGHTS)
def test_at_every_moment_each_item_had_its_share_but_for_one_request_of_each_other(weights: list[int]) -> None:
    split = WeightedSplit(list(enumerate(weights)))
    total, had = sum(weights), Counter[int]()
    for taken in range(1, 2 * total + 1):
        had[split.take()] += 1
        for item, weight in enumerate(weights):
            assert abs(had[item] - taken * weight / total) < len(weights)


def test_turns_lie_apart() -> None:
    split = WeightedSplit([("a", 5), ("b", 1), ("c", 1)])
    assert "".join(split.take() for _ in range(7)) == "aabacaa"


@given(st.integers(1, 1_000_000), st.integers(1, 300))
def test_a_fraction_is_exact_at_every_moment(parts: int, times: int) -> None:
    fraction = Fraction(parts / 1_000_000)
    counts = accumulate(fraction.take() for _ in range(times))
    assert [int(n) for n in counts] == [asked * parts // 1_000_000 for asked in range(1, times + 1)]


@pytest.mark.parametrize(("value", "wanted"), [(1.0, 1000), (0.1, 100), (0.001, 1), (1e-9, 0)])
def test_fractions_of_a_thousand(value: float, wanted: int) -> None:
    fraction = Fraction(value)
    assert sum(fraction.take() for _ in range(1000)) == wanted
