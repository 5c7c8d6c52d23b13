"""When a difference counts as a gain: it is worth a change, shows in every round, and is more than chance."""

from __future__ import annotations

import pytest

from naiad.perf.advise.gain import Verdict, compare_rounds

STEADY = ([100.0, 101.0, 99.0], [100.0, 102.0, 98.0], [99.0, 100.0, 101.0])


def scaled(*factors: float) -> list[list[float]]:
    return [[value * factor for value in values] for values, factor in zip(STEADY, factors, strict=True)]


@pytest.mark.parametrize(
    ("factors", "verdict"),
    [
        ((2, 2, 2), Verdict.GAINS),
        ((1.08, 1.09, 1.1), Verdict.GAINS),
        ((0.5, 0.6, 0.5), Verdict.COSTS),
        ((1, 1, 1), Verdict.NOTHING),
        # Sure, and worth nothing.
        ((1.03, 1.04, 1.03), Verdict.NOTHING),
        ((0.97, 0.96, 0.97), Verdict.NOTHING),
        # Another program had the machine in one of the rounds, or in all but one.
        ((0.9, 1.3, 1.2), Verdict.UNCLEAR),
        ((1, 1, 2), Verdict.UNCLEAR),
        ((1.12, 1.03, 1.1), Verdict.UNCLEAR),
        ((1.06, 1.04, 1.09), Verdict.UNCLEAR),
        ((0.8, 1.02, 0.9), Verdict.NOTHING),
    ],
)
def test_rates(factors: tuple[float, ...], verdict: Verdict) -> None:
    assert compare_rounds(STEADY, scaled(*factors)).verdict is verdict


def test_less_of_a_latency_is_a_gain() -> None:
    found = compare_rounds(STEADY, scaled(0.5, 0.5, 0.5), less_is_better=True)
    assert (found.verdict, found.gain) == (Verdict.GAINS, 1.0)
    assert compare_rounds(STEADY, scaled(2, 2, 2), less_is_better=True).verdict is Verdict.COSTS


def test_how_sure_it_is() -> None:
    found = compare_rounds(STEADY, scaled(1.01, 0.98, 1.07))
    assert found.verdict is Verdict.NOTHING
    assert found.rounds == pytest.approx((0.01, -0.02, 0.07))
    assert found.windows == 9
    assert 0.05 < found.chance <= 1
    # Rounds that differ by so much could hide as much.
    assert found.would_show == pytest.approx(0.09)


def test_a_single_round_proves_nothing() -> None:
    assert compare_rounds(STEADY[:1], [[200.0, 201.0, 202.0]]).verdict is Verdict.UNCLEAR
