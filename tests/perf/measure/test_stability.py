"""Which windows agree, which are the best, and why others do not agree."""

from __future__ import annotations

import pytest

from naiad.perf.measure.stability import best_windows, is_stable, spread, unstable_reason
from naiad.perf.results import Window

SECOND = 1_000_000_000


def window(rate: int, latency_us: int = 100, tail_us: int = 0) -> Window:
    """A second with so many requests, all of which take so long; one in ten takes ``tail_us``, if given."""
    found = Window(0, SECOND, requests=rate)
    for number in range(10):
        found.latency.add((tail_us if tail_us and number == 9 else latency_us) * 1000)
    return found


def windows(*rates: int) -> list[Window]:
    return [window(rate) for rate in rates]


def test_three_windows_have_to_agree() -> None:
    assert not is_stable(windows(100, 100), None, 10)
    assert is_stable(windows(100, 105, 110), None, 10)
    assert not is_stable(windows(100, 105, 111), None, 10)
    assert is_stable(windows(5, 100, 105, 110), None, 10)


def test_the_latency_has_to_agree_as_well() -> None:
    agreeing = [window(100, latency) for latency in (100, 105, 109)]
    assert is_stable(agreeing, None, 10)
    assert not is_stable([*agreeing[:2], window(100, 120)], None, 10)


def test_a_percentile_takes_the_place_of_the_average() -> None:
    tails = [window(100, 100, tail) for tail in (200, 400, 800)]
    assert not is_stable(tails, None, 10)
    assert is_stable(tails, 50, 10)
    assert not is_stable(tails, 99, 10)


def test_a_window_without_requests_is_never_stable() -> None:
    empty = Window(0, SECOND)
    assert not is_stable([*windows(100, 100), empty], None, 1000)
    assert spread([*windows(100), empty], None).rate is None


def test_the_best_windows_are_those_that_differ_least() -> None:
    found = windows(50, 100, 104, 108, 70, 200)
    assert best_windows(found, None) == found[1:4]
    assert best_windows(found[:2], None) == found[:2]
    equal = windows(100, 100, 100, 100)
    assert best_windows(equal, None)[-1] is equal[-1]


def test_reasons_say_what_differs_and_by_how_much() -> None:
    assert unstable_reason(windows(100, 150, 200), None, 10) == "rate differs by 100% over 3 windows, more than 10%"
    slow = [window(100, 100), window(101, 150), window(100, 130)]
    assert unstable_reason(slow, None, 10) == "average latency differs by 50% over 3 windows, more than 10%"
    assert "p95 latency differs" in unstable_reason([window(100, 100, tail) for tail in (200, 400, 800)], 95, 10)
    both = [window(100, 100), window(200, 50), window(150, 70)]
    assert unstable_reason(both, None, 10).startswith("rate differs by 100% and average latency differs by 100%")


def test_reasons_of_windows_that_are_missing_or_empty() -> None:
    assert unstable_reason(windows(100, 100), None, 10) == "2 windows, expected at least 3"
    assert unstable_reason([Window(0, SECOND)] * 3, None, 10) == "no request was completed"
    assert "1 of 3 windows completed no request" in unstable_reason([*windows(1, 1), Window(0, SECOND)], None, 10)


@pytest.mark.parametrize("percentile", [None, 95])
def test_windows_that_agree_earlier_but_not_at_the_end_have_a_reason(percentile: int | None) -> None:
    found = windows(100, 101, 102, 300, 900)
    assert not is_stable(found, percentile, 10)
    assert "rate differs by 782%" in unstable_reason(found, percentile, 10)
