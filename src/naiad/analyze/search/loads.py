"""Other loads on the same configurations: the curve of throughput over latency, and the most that keeps a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from naiad.analyze.measurement import Measurement
from naiad.analyze.search.search import MeasurementRequest, Search, Utility
from naiad.analyze.trial import AnalysisTrial

_GAIN: Final = 1.05
_TRIES: Final = 4
"""A series of loads ends when the last four brought less than 5% over what came before."""


def at_load(trial: AnalysisTrial, value: float) -> AnalysisTrial:
    """The trial with another concurrency, or another request rate where it has one."""
    loads = tuple(
        replace(load, rate=float(value)) if load.rate else replace(load, concurrency=int(value)) for load in trial.loads
    )
    return replace(trial, loads=loads)


def load_of(trial: AnalysisTrial) -> float:
    """The greatest concurrency or rate of a trial."""
    return max(load.rate or load.concurrency for load in trial.loads)


def sweep_loads(
    trials: Sequence[AnalysisTrial],
    values: Sequence[int],
    is_within: Callable[[Measurement], bool],
    utility: Utility,
    scale: int = 2,
    binary_steps: int = 5,
) -> Search:
    """Measure each trial under growing loads until more brings nothing.

    Where the first loads keep the constraints and a later one does not, the greatest that does is looked for between
    them.

    Args:
        is_within: whether a measurement keeps all constraints.
    """
    for number, trial in enumerate(trials):
        best, since = 0.0, 0
        within: float | None = None
        broken: float | None = None
        for place, value in enumerate(values):
            left = (len(trials) - number - 1) * len(values) + min(len(values) - place - 1, _TRIES)
            measured = yield MeasurementRequest(at_load(trial, value), scale, left, "loads of the best")
            if utility(measured) is None:
                break
            if is_within(measured):
                within = value
            elif within is not None:
                broken = value
                break
            since += 1
            if measured.throughput >= best * _GAIN:
                best, since = measured.throughput, 0
            if since >= _TRIES:
                break
        if within is not None and broken is not None:
            yield from _between(trial, int(within), int(broken), is_within, scale, binary_steps)


def _between(
    trial: AnalysisTrial, within: int, broken: int, is_within: Callable[[Measurement], bool], scale: int, steps: int
) -> Search:
    for number in range(steps):
        if broken - within < 2:
            return
        middle = (within + broken) // 2
        measured = yield MeasurementRequest(at_load(trial, middle), scale, steps - number - 1, "towards the limit")
        if is_within(measured):
            within = middle
        else:
            broken = middle
