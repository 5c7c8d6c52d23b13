"""How sure it is that one measurement is better than another: from the spread of windows, and that between repeats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, mean, variance
from typing import Final

from naiad.analyze.measurement import Measurement, ModelFigures

CERTAIN: Final = 0.95
_LEAST_SPREAD: Final = 0.02
"""Two measurements of one configuration differ by about 2% on a quiet machine, however alike their windows are."""
_FEW: Final = 6


@dataclass(frozen=True, slots=True)
class Noise:
    """How much measurements of one configuration differ, as the standard deviation of their logarithms."""

    between: float = _LEAST_SPREAD

    @staticmethod
    def of(repeats: Iterable[Sequence[Measurement]]) -> Noise:
        """The noise that repeated measurements show; few of them are pulled to a cautious value."""
        squares, freedom = 0.0, 0
        for found in repeats:
            values = [math.log(one.throughput) for one in found if not one.error and one.throughput > 0]
            if len(values) > 1:
                squares += variance(values) * (len(values) - 1)
                freedom += len(values) - 1
        prior = (2 * _LEAST_SPREAD) ** 2
        pooled = (squares + _FEW * prior) / (freedom + _FEW)
        return Noise(max(math.sqrt(pooled), _LEAST_SPREAD))


def probability(first: Measurement, second: Measurement, noise: Noise) -> float:
    """How likely the first has more throughput than the second in another measurement; 0.5 where nothing is known."""
    if first.error or second.error or not first.throughput or not second.throughput:
        return 0.5
    gap = math.log(first.throughput / second.throughput)
    spread = math.sqrt(_variance(first, noise) + _variance(second, noise))
    return NormalDist().cdf(gap / spread)


def _variance(measured: Measurement, noise: Noise) -> float:
    within = mean(_window_variance(model) for model in measured.models)
    return within + noise.between**2


def _window_variance(model: ModelFigures) -> float:
    """Of the mean of the windows."""
    values = [math.log(rate) for rate in model.rates if rate > 0]
    return variance(values) / len(values) if len(values) > 1 else 0.0


def order_text(first: Measurement, second: Measurement, noise: Noise) -> str:
    """How sure the order of two is, for people."""
    found = probability(first, second, noise)
    if found >= CERTAIN:
        return f"certain ({found:.1%})" if found < 0.999 else "certain (above 99.9%)"
    if found <= 1 - CERTAIN:
        return f"the other way round ({1 - found:.1%})"
    # Rounded down: 94.9% is not the 95% from which on it is certain.
    return f"open: this order has a probability of {int(found * 100)}%, and is certain from {CERTAIN:.0%} on"
