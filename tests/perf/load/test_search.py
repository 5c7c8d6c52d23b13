"""Which levels a search measures, as a function of which of them keep the limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from naiad.perf.load.search import Search, binary_levels, linear_levels, search_levels, single_level
from naiad.perf.settings import LoadPlan, Range


def played(search: Search, keeps: Callable[[float], bool] = lambda level: True) -> list[float]:
    """The levels of a search on a server that keeps the limit at some of them."""
    found: list[float] = []
    try:
        level = next(search)
        while True:
            found.append(level)
            level = search.send(keeps(level))
    except StopIteration:
        return found


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [(1, 4, 1, [1, 2, 3, 4]), (1, 8, 3, [1, 4, 7]), (8, 8, 1, [8]), (0.1, 0.3, 0.1, [0.1, 0.2, 0.3])],
)
def test_a_linear_search_goes_through_the_range(start: float, end: float, step: float, expected: list[float]) -> None:
    assert played(linear_levels(start, end, step)) == pytest.approx(expected)


def test_a_linear_search_ends_with_the_first_level_over_the_limit() -> None:
    assert played(linear_levels(1, 10, 2), lambda level: level < 5) == [1, 3, 5]
    assert played(linear_levels(1, 0, 1), lambda level: level < 4) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (0, [1]),
        (99, [1, 16]),
        (5, [1, 16, 8, 4, 6, 5]),
        (15, [1, 16, 8, 12, 14, 15]),
    ],
)
def test_a_binary_search_halves_what_is_left(most: int, expected: list[float]) -> None:
    assert played(binary_levels(1, 16, 1), lambda level: level <= most) == expected


def test_a_binary_search_of_rates_stops_at_its_precision() -> None:
    found = played(binary_levels(10, 100, 11.5), lambda rate: rate <= 40)
    assert found == [10, 100, 55, 32.5, 43.75]


def test_plans_choose_their_search() -> None:
    assert played(search_levels(LoadPlan(levels=Range(2, 4, 1)))) == [2, 3, 4]
    assert played(search_levels(LoadPlan(levels=Range(2, 4, 1), binary_search=True))) == [2, 4]
    assert played(single_level(7)) == [7]
