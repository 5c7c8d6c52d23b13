"""Naiad's own search: short measurements of few configurations, then longer ones of those that do best.

Short windows are noisy, so most measurements only say where to look: they are spread over the space, and then put where
a regression expects the most, other numbers of instances of the best first. The better half of them is measured again
with windows of twice the length, the better half of those with twice that, and so on (successive halving).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from naiad.analyze.measurement import Measurement
from naiad.analyze.search.coordinates import coordinates
from naiad.analyze.search.search import MeasurementRequest, Search, Utility
from naiad.analyze.search.work import NOTHING, WorkLeft
from naiad.analyze.space.knobs import Knob
from naiad.analyze.space.space import Point, Space
from naiad.scheduling.tuning.regression import Floats, Regression, expected_improvement

_MOST_POINTS: Final = 4096
"""Of larger spaces so many points are looked at, chosen at random."""
_PART: Final = 5
"""One in so many points is measured, the repeats included."""
_LEAST: Final = 10
_MOST: Final = 60
_SPREAD: Final = 0.6
"""The part of the short measurements that is spread over the space before any is put where the best is expected."""
_LONGER: Final = ((15, 4), (30, 2))
"""Searches of so few measurements have windows of so many times the shortest length, and take no longer than others."""
_ENOUGH: Final = 0.004
"""Nothing is looked for any more where so little is to be gained."""


@dataclass(slots=True)
class PointSample:
    """The figures of one point so far."""

    point: Point
    values: list[float] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The utility; longer windows count for more."""
        return float(np.average(self.values, weights=self.weights))


def budget_of(size: int) -> int:
    """How many measurements a space is worth, that of the default included."""
    return min(max(size // _PART, min(size + 1, _LEAST)), _MOST)


def halving_work(size: int, budget: int = 0) -> WorkLeft:
    """How much the search of a space measures behind its default."""
    total = (budget or budget_of(size)) - 1
    if size <= total:
        return WorkLeft.of(size, 2) + WorkLeft.of(total - size, 4)
    return sum(_work(_rungs(total), _first_scale(total)), NOTHING)


def _work(rungs: Sequence[int], first: int) -> list[WorkLeft]:
    return [WorkLeft.of(count, first * 2**number) for number, count in enumerate(rungs)]


def _first_scale(total: int) -> int:
    """The length of the first windows: where little is measured, noise costs the most and time the least."""
    return next((scale for most, scale in _LONGER if total <= most), 1)


def halving(space: Space, utility: Utility, budget: int = 0, seed: int = 0) -> Search:
    """Search a space, whose default was measured before.

    Args:
        budget: the most measurements; 0 for a fifth of the space.
    """
    total = (budget or budget_of(space.size)) - 1
    points = _pool(space, seed)
    if len(points) <= total:
        yield from _everything(space, points, utility, total)
        return
    rungs = _rungs(total)
    at, owners = coordinates(space, points)
    run = _HalvingRun(space, utility, points, at, owners)
    first = _first_scale(total)
    work = _work(rungs, first)
    yield from run.explore(rungs[0], first, sum(work[1:], NOTHING))
    for number, size in enumerate(rungs[1:], 1):
        yield from run.repeat(size, first * 2**number, 2**number, sum(work[number + 1 :], NOTHING))


def _everything(space: Space, points: Sequence[Point], utility: Utility, total: int) -> Search:
    """A small space: all of it, then the best of it again."""
    samples: list[PointSample] = []
    for number, point in enumerate(points):
        again = max(total - len(points), 0)
        left = WorkLeft.of(len(points) - number - 1, 2) + WorkLeft.of(again, 4)
        measured = yield MeasurementRequest(space.trial(point), 2, left, "all configurations")
        value = utility(measured)
        if value is not None:
            samples.append(PointSample(point, [value], [2]))
    best = sorted(samples, key=lambda sample: -sample.mean)[: max(total - len(points), 0)]
    for number, sample in enumerate(best):
        left = WorkLeft.of(len(best) - number - 1, 4)
        yield MeasurementRequest(space.trial(sample.point), 4, left, "the best again, longer")


def _pool(space: Space, seed: int) -> list[Point]:
    if space.size <= _MOST_POINTS:
        return list(space.points())
    numbers = random.Random(seed).sample(range(space.size), _MOST_POINTS)
    return [point for number in sorted(numbers) if space.is_possible(point := space.point(number))]


def _rungs(total: int) -> list[int]:
    """How many measurements each length of windows gets: four in five for the shortest, then fewer and fewer."""
    first = max(math.ceil(total * 0.8), 1)
    rungs, left = [first], total - first
    while left > 0:
        size = max(math.ceil(left * 2 / 3), min(left, 2))
        rungs.append(size)
        left -= size
    return rungs


class _HalvingRun:
    def __init__(self, space: Space, utility: Utility, points: list[Point], at: Floats, owners: list[int]) -> None:
        self._space = space
        self._utility = utility
        self._points = points
        self._at = at
        self._owners = owners
        self._samples: dict[int, PointSample] = {}
        self._failed: set[int] = set()

    def explore(self, count: int, scale: int, later: WorkLeft) -> Search:
        """Short measurements: first spread, then where the most is expected."""
        spread = max(round(count * _SPREAD), 3)
        for number in range(count):
            place = self._farthest() if number < spread or len(self._samples) < 2 else self._most_promising()
            if place is None:
                break
            stage = "spread over the space" if number < spread else "where the most is expected"
            left = WorkLeft.of(count - number - 1, scale) + later
            measured = yield MeasurementRequest(self._space.trial(self._points[place]), scale, left, stage)
            self._note(place, measured, 1)

    def repeat(self, count: int, scale: int, times: int, later: WorkLeft) -> Search:
        """The best points again, with windows of so many times the length of the first ones."""
        order = sorted(self._samples, key=lambda place: -self._expected(place))[:count]
        for number, place in enumerate(order):
            stage = f"the best {len(order)} again, with longer windows"
            left = WorkLeft.of(len(order) - number - 1, scale) + later
            measured = yield MeasurementRequest(self._space.trial(self._points[place]), scale, left, stage)
            self._note(place, measured, times)

    def _note(self, place: int, measured: Measurement, weight: int) -> None:
        value = self._utility(measured)
        if value is None:
            # Left out for good, whatever a shorter window gave.
            self._failed.add(place)
            self._samples.pop(place, None)
            return
        sample = self._samples.setdefault(place, PointSample(self._points[place]))
        sample.values.append(value)
        sample.weights.append(weight)

    def _expected(self, place: int) -> float:
        """What was measured, pulled to what its neighbours say: a lucky short window is not believed."""
        means, _ = self._regression().predict(self._at[[place]])
        return float(means[0])

    def _regression(self) -> Regression:
        places = list(self._samples)
        values = np.array([self._samples[place].mean for place in places])
        weights = np.array([float(sum(self._samples[place].weights)) for place in places])
        return Regression(self._at[places], values, weights, self._owners)

    def _other_instances(self, best: int, means: Floats, deviations: Floats) -> int | None:
        """The best point with another number of instances, if that may be better still.

        Instances share cores, devices and locks, so that the throughput over their number has steps and peaks. The
        regression is smooth, and sure of what lies between two numbers that were measured.
        """
        seen = set(self._seen())
        knobs = [dimension.knob for dimension in self._space.dimensions]
        found = [
            place
            for place, point in enumerate(self._points)
            if place not in seen
            and means[place] + deviations[place] >= means[best]
            and all(
                mine == other or knob is Knob.INSTANCES
                for knob, mine, other in zip(knobs, point, self._points[best], strict=True)
            )
        ]
        return max(found, key=lambda place: float(means[place] + deviations[place]), default=None)

    def _seen(self) -> list[int]:
        return [*self._samples, *self._failed]

    def _farthest(self) -> int:
        """The point that is farthest from all that were measured; first the one in the middle."""
        seen = self._seen()
        if not seen:
            return int(np.argmin(((self._at - self._at.mean(axis=0)) ** 2).sum(axis=1)))
        gaps = ((self._at[:, None, :] - self._at[seen][None, :, :]) ** 2).sum(axis=2).min(axis=1)
        return int(np.argmax(gaps))

    def _most_promising(self) -> int | None:
        means, deviations = self._regression().predict(self._at)
        best = max(self._samples, key=lambda place: float(means[place]))
        if (other := self._other_instances(best, means, deviations)) is not None:
            return other
        gains = expected_improvement(means, deviations, float(means[best]))
        gains[self._seen()] = -1.0
        place = int(np.argmax(gains))
        return place if gains[place] > _ENOUGH / 40 else None
