"""Whether one configuration gains over another, and how sure that is: by rounds that were measured in turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

from naiad.perf.report.significance import mann_whitney

LEAST_GAIN: Final = 0.05
"""A smaller difference is worth no change of a configuration, however sure it is."""
_CHANCE: Final = 0.01
"""Differences that come by chance alone more often than that are none. Several are looked at in each run."""


class Verdict(StrEnum):
    """What a comparison says."""

    GAINS = "gains"
    NOTHING = "gains nothing here"
    COSTS = "costs"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class GainComparison:
    """How a second configuration does beside a first one.

    Attributes:
        rounds: the gain of each round: 0.5 is half as much again, or half as long again less of a latency.
        chance: how likely windows that differ at least as much are, if both configurations do the same.
        windows: how many windows each has.
        verdict: what follows.
    """

    rounds: tuple[float, ...]
    chance: float
    windows: int
    verdict: Verdict

    @property
    def gain(self) -> float:
        """The gain of the round in the middle."""
        return median(self.rounds)

    @property
    def would_show(self) -> float:
        """A gain above this would have shown, for a comparison that found none: less is lost among the rounds."""
        return max(LEAST_GAIN, max(self.rounds), max(self.rounds) - min(self.rounds))


def compare_rounds(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], *, less_is_better: bool = False
) -> GainComparison:
    """Compare two configurations.

    A gain has to be worth a change in every round, and to be more than chance. So a machine that is busy for a while,
    during one configuration, makes no gain.

    Args:
        first, second: the figures of each round's windows; rounds with the same place were measured one soon after the
            other. All figures are above 0.
        less_is_better: whether the figures are durations.
    """
    gains = []
    for before, after in zip(first, second, strict=True):
        ratio = median(after) / median(before)
        gains.append((1 / ratio if less_is_better else ratio) - 1)
    flat_first = [value for values in first for value in values]
    flat_second = [value for values in second for value in values]
    chance = mann_whitney(flat_first, flat_second)
    return GainComparison(tuple(gains), chance, min(len(flat_first), len(flat_second)), _verdict(gains, chance))


def _verdict(gains: Sequence[float], chance: float) -> Verdict:
    if chance < _CHANCE and min(gains) >= LEAST_GAIN:
        return Verdict.GAINS
    if chance < _CHANCE and max(gains) <= -LEAST_GAIN:
        return Verdict.COSTS
    is_none = median(gains) < LEAST_GAIN and max(gains) < 2 * LEAST_GAIN
    return Verdict.NOTHING if is_none else Verdict.UNCLEAR
