"""Other loads on the same configurations: the curve of throughput over latency, and the most that keeps a limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Final

from naiad.analyze.measurement import Measurement
from naiad.analyze.search.search import MeasurementRequest, Search, Utility
from naiad.analyze.search.work import WorkLeft
from naiad.analyze.trial import AnalysisTrial, load_of

_GAIN: Final = 1.05
_TRIES: Final = 4
"""A series of loads ends when the last four brought less than 5% over what came before."""
UNKNOWN: Final = 0.5
"""How likely a series of loads breaks a constraint of which nothing is known."""


@dataclass(frozen=True, slots=True)
class SeriesForecast:
    """The expected measurements of a series of loads.

    Attributes:
        count: the growing loads.
        steps: those towards the greatest load that keeps the constraints.
        breaks: whether the last of the growing loads is expected to break the constraints.
    """

    count: int
    steps: float = 0.0
    breaks: bool = False


Forecast = Callable[[AnalysisTrial, Measurement | None], Sequence[SeriesForecast]]
"""Equally likely forecasts of the series of a trial, whose last measurement may be known."""


def at_load(trial: AnalysisTrial, value: float) -> AnalysisTrial:
    """The trial with another concurrency, or another request rate where it has one."""
    loads = tuple(
        replace(load, rate=float(value)) if load.rate else replace(load, concurrency=int(value)) for load in trial.loads
    )
    return replace(trial, loads=loads)


def expected_loads(trial: AnalysisTrial, values: Sequence[int]) -> int:
    """How many loads a series is expected to have: more gains up to the one that keeps the model busy, no later one."""
    gaining = sum(value <= load_of(trial) for value in values)
    return min(gaining + _TRIES, len(values))


def forecast_series(
    trial: AnalysisTrial, values: Sequence[int], binary_steps: int, breaks_at: float | None = None
) -> SeriesForecast:
    """The forecast of a series of loads.

    Args:
        binary_steps: 0 where there are no constraints.
        breaks_at: the load from which on the constraints are expected to be broken; None if not known.
    """
    count = expected_loads(trial, values)
    if breaks_at is None:
        return SeriesForecast(count, UNKNOWN * binary_steps)
    place = next((place for place, value in enumerate(values) if value >= breaks_at), count)
    # Where the first load breaks them there is nothing to look for, and where none does neither.
    if not binary_steps or not 0 < place < count:
        return SeriesForecast(count)
    return SeriesForecast(place + 1, min(math.log2(values[place] - values[place - 1]), binary_steps), breaks=True)


def mean_forecast(forecasts: Sequence[SeriesForecast]) -> tuple[float, float]:
    """The growing loads and the steps to be expected."""
    return mean(one.count for one in forecasts), mean(one.steps for one in forecasts)


def sweep_loads(
    trials: Sequence[AnalysisTrial],
    values: Sequence[int],
    is_within: Callable[[Measurement], bool],
    utility: Utility,
    scale: int = 2,
    binary_steps: int = 5,
    forecast: Forecast | None = None,
) -> Search:
    """Measure each trial under growing loads until more brings nothing.

    Where the first loads keep the constraints and a later one does not, the greatest that does is looked for between
    them.

    Args:
        is_within: whether a measurement keeps all constraints.
        binary_steps: towards the greatest load that keeps them; 0 where there are none.
        forecast: what is expected of each series; None where nothing is known of the latencies.
    """
    known = forecast or (lambda trial, _: [forecast_series(trial, values, binary_steps)])
    expected = [mean_forecast(known(trial, None)) for trial in trials]
    grown = 0
    for number, trial in enumerate(trials):
        # The present series counts as expected; those before it say how far that is off.
        ratio = (grown + expected[number][0]) / sum(count for count, _ in expected[: number + 1])
        rest = sum(ratio * count + steps for count, steps in expected[number + 1 :])
        run = _LoadSeries(trial, is_within, scale, WorkLeft.of(rest, scale, len(trials) - number - 1), known)
        yield from run.grow(values, utility)
        grown += run.measured
        yield from run.approach(binary_steps)


@dataclass(slots=True)
class _LoadSeries:
    """The loads on one configuration.

    Attributes:
        later: the work of the series behind this one.
        forecast: what is expected of it.
        measured: how many loads were measured.
        within, broken: the greatest load that keeps the constraints, and a greater one that does not, if there are any.
    """

    trial: AnalysisTrial
    is_within: Callable[[Measurement], bool]
    scale: int
    later: WorkLeft
    forecast: Forecast
    measured: int = 0
    within: int | None = None
    broken: int | None = None

    def grow(self, values: Sequence[int], utility: Utility) -> Search:
        """Growing loads until more brings nothing, or breaks the constraints."""
        best, since = 0.0, 0
        found: Measurement | None = None
        for value in values:
            left = mean(self._left(one, len(values), since) for one in self.forecast(self.trial, found))
            found = yield self._request(value, left, "loads of the best")
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

    def _left(self, forecast: SeriesForecast, most: int, since: int) -> float:
        """The measurements behind the next load, where there are so many loads at most."""
        is_ending = forecast.breaks and forecast.count > self.measured
        # More than expected come while more still gains.
        count = forecast.count if is_ending else max(forecast.count, self.measured + _TRIES - since)
        steps = forecast.steps if is_ending or not forecast.breaks else 0.0
        return max(min(count, most) - self.measured - 1, 0) + steps

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
