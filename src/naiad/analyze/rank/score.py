"""How good a measurement is beside the configuration of the repository."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from naiad.analyze.measurement import HIGHER_IS_BETTER, Measurement
from naiad.analyze.settings.goal import Constraint, Goal
from naiad.scheduling.tuning.score import excess, shortfall


@dataclass(slots=True)
class Judge:
    """Scores measurements by the goals of the models under load.

    Attributes:
        base: the measurement that gains are relative to; None while it is not there, or has failed.
    """

    goals: Sequence[Goal]
    base: Measurement | None = None

    def gain(self, measured: Measurement) -> float | None:
        """The weighted mean of the logarithms of the gains: 0.1 is about 10% better. None where it failed."""
        if measured.error:
            return None
        total = weights = 0.0
        for place, goal in enumerate(self.goals):
            for metric, weight in goal.objectives.items():
                value = measured.figure(metric, place)
                base = 1.0 if self.base is None else self.base.figure(metric, place)
                if not value or not base or value <= 0 or base <= 0:
                    continue
                ratio = math.log(value / base)
                total += goal.weighting * weight * (ratio if metric in HIGHER_IS_BETTER else -ratio)
                weights += goal.weighting * weight
        return total / weights if weights else 0.0

    def utility(self, measured: Measurement) -> float | None:
        """The gain, less what a search takes off for limits that are broken: the further beyond, the more."""
        gain = self.gain(measured)
        if gain is None:
            return None
        return gain - sum(_excess(measured, one, place) for place, one in self._limits())

    def broken(self, measured: Measurement) -> list[str]:
        """The constraints that a measurement does not keep."""
        if measured.error:
            return []
        return [one.text for place, one in self._limits() if _excess(measured, one, place) > 0]

    def is_within(self, measured: Measurement) -> bool:
        """Whether it has figures and keeps all constraints."""
        return not measured.error and not self.broken(measured)

    def _limits(self) -> list[tuple[int, Constraint]]:
        return [(place, one) for place, goal in enumerate(self.goals) for one in goal.constraints]

    def ranked(self, measurements: Sequence[Measurement]) -> list[Measurement]:
        """The best first; those that break constraints behind all others, failed ones last."""

        def order(measured: Measurement) -> tuple[int, float]:
            if measured.error:
                return 2, 0.0
            if not self.is_within(measured):
                return 1, -(self.utility(measured) or 0.0)
            return 0, -(self.gain(measured) or 0.0)

        return sorted(measurements, key=order)


def _excess(measured: Measurement, limit: Constraint, place: int) -> float:
    value = measured.figure(limit.metric, place)
    if value is None or value <= 0:
        return 0.0
    if limit.most is not None and value > limit.most:
        return excess(value, limit.most)
    return 0.0 if limit.least is None else shortfall(value, limit.least)
