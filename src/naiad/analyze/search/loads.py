"""Other loads on the same configurations: the curve of throughput over latency, and the most that keeps a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from naiad.analyze.measurement import Measurement
from naiad.analyze.search.search import MeasurementRequest, Search, Utility
from naiad.analyze.search.work import WorkLeft
from naiad.analyze.trial import AnalysisTrial

_GAIN: Final = 1.05
_TRIES: Final = 4
"""A series of loads ends when the last four brought less than 5% over what came before."""
UNKNOWN: Final = 0.5
"""How likely a series of loads breaks a constraint of which nothing is known."""


def at_load(trial: AnalysisTrial, value: float) -> AnalysisTrial:
    """The trial with another concurrency, or another request rate where it has one."""
    loads = tuple(
        replace(load, rate=float(value)) if load.rate else replace(load, concurrency=int(value)) for load in trial.loads
    )
    return replace(trial, loads=loads)


def load_of(trial: AnalysisTrial) -> float:
    """The greatest concurrency or rate of a trial."""
    return max(load.rate or load.concurrency for load in trial.loads)


def expected_loads(trial: AnalysisTrial, values: Sequence[int]) -> int:
    """How many loads a series is expected to have: more gains up to the one that keeps the model busy, no later one."""
    gaining = sum(value <= load_of(trial) for value in values)
    return min(gaining + _TRIES, len(values))


def sweep_loads(
    trials: Sequence[AnalysisTrial],
    values: Sequence[int],
    is_within: Callable[[Measurement], bool],
    utility: Utility,
    scale: int = 2,
    binary_steps: int = 5,
    chances: Sequence[float] = (),
) -> Search:
    """Measure each trial under growing loads until more brings nothing.

    Where the first loads keep the constraints and a later one does not, the greatest that does is looked for between
    them.

    Args:
        is_within: whether a measurement keeps all constraints.
        binary_steps: towards the greatest load that keeps them; 0 where there are none.
        chances: how likely each trial breaks them; empty where nothing is known.
    """
    expected = [expected_loads(trial, values) for trial in trials]
    steps = [chance * binary_steps for chance in chances or [UNKNOWN] * len(trials)]
    grown = 0
    for number, trial in enumerate(trials):
        # The present series counts as expected; those before it say how far that is off.
        ratio = (grown + expected[number]) / sum(expected[: number + 1])
        rest = ratio * sum(expected[number + 1 :]) + sum(steps[number + 1 :])
        run = _LoadSeries(trial, is_within, scale, WorkLeft.of(rest, scale, len(trials) - number - 1))
        yield from run.grow(values, utility, expected[number], steps[number])
        grown += run.measured
        yield from run.approach(binary_steps)


@dataclass(slots=True)
class _LoadSeries:
    """The loads on one configuration.

    Attributes:
        later: the work of the series behind this one.
        measured: how many loads were measured.
        within, broken: the greatest load that keeps the constraints, and a greater one that does not, if there are any.
    """

    trial: AnalysisTrial
    is_within: Callable[[Measurement], bool]
    scale: int
    later: WorkLeft
    measured: int = 0
    within: int | None = None
    broken: int | None = None

    def grow(self, values: Sequence[int], utility: Utility, expected: int, behind: float) -> Search:
        """Growing loads until more brings nothing, or breaks the constraints."""
        best, since = 0.0, 0
        for value in values:
            # More than expected come while more still gains.
            most = min(max(expected, self.measured + _TRIES - since), len(values))
            found = yield self._request(value, most - self.measured - 1 + behind, "loads of the best")
            if utility(found) is None:
                return
            if self.is_within(found):
                self.within = value
            elif self.within is not None:
                self.broken = value
                return
            since += 1
            if found.throughput >= best * _GAIN:
                best, since = found.throughput, 0
            if since >= _TRIES:
                return

    def approach(self, steps: int) -> Search:
        """The greatest load that keeps the constraints, by halves."""
        for number in range(steps):
            if self.within is None or self.broken is None or self.broken - self.within < 2:
                return
            middle = (self.within + self.broken) // 2
            found = yield self._request(middle, steps - number - 1, "towards the limit")
            if self.is_within(found):
                self.within = middle
            else:
                self.broken = middle

    def _request(self, value: int, left: float, stage: str) -> MeasurementRequest:
        self.measured += 1
        work = WorkLeft.of(left, self.scale, 0) + self.later
        return MeasurementRequest(at_load(self.trial, value), self.scale, work, stage)
