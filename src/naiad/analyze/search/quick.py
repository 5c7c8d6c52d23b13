"""A climb from the middle of the space: always to the best neighbour, with steps that grow shorter."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from naiad.analyze.search.search import MeasurementRequest, Search, Utility
from naiad.analyze.search.work import WorkLeft
from naiad.analyze.space.space import Point, Space

_SCALE = 2


def quick_work(space: Space) -> WorkLeft:
    """How much a climb is expected to measure."""
    here: Point = tuple(0 for _ in space.dimensions)
    return WorkLeft.of(1, _SCALE) + _left(space, here, {here}, _first_steps(space))


def _first_steps(space: Space) -> list[int]:
    return [max((len(dimension.values) - 1) // 2, 1) for dimension in space.dimensions]


def _left(space: Space, here: Point, seen: Collection[Point], steps: Sequence[int]) -> WorkLeft:
    """The neighbours that are still to be looked at from here; another place has about as many."""
    found = set()
    for place, first in enumerate(steps):
        step = first
        while step:
            found |= {_moved(space, here, place, step), _moved(space, here, place, -step)}
            step //= 2
    return WorkLeft.of(len(found.difference(seen)), _SCALE)


def quick(space: Space, utility: Utility) -> Search:
    """Climb from the least values, one dimension after another, with steps that are halved where none pays."""
    here: Point = tuple(0 for _ in space.dimensions)
    seen: dict[Point, float] = {}
    steps = _first_steps(space)
    yield from _value(space, utility, here, seen, _left(space, here, {here}, steps))
    while any(steps):
        before = here
        for place in range(len(space.dimensions)):
            if not steps[place]:
                continue
            for step in (steps[place], -steps[place]):
                there = _moved(space, here, place, step)
                if there not in seen:
                    left = _left(space, here, {*seen, there}, steps)
                    yield from _value(space, utility, there, seen, left)
                if seen[there] > seen[here]:
                    here = there
                    break
        if here == before:
            steps = [step // 2 for step in steps]


def _value(space: Space, utility: Utility, point: Point, seen: dict[Point, float], left: WorkLeft) -> Search:
    if not space.is_possible(point):
        seen[point] = float("-inf")
        return
    measured = yield MeasurementRequest(space.trial(point), _SCALE, left, "climb")
    value = utility(measured)
    seen[point] = float("-inf") if value is None else value


def _moved(space: Space, point: Point, place: int, step: int) -> Point:
    last = len(space.dimensions[place].values) - 1
    moved = list(point)
    moved[place] = min(max(point[place] + step, 0), last)
    return tuple(moved)
