"""A climb from the middle of the space: always to the best neighbour, with steps that grow shorter."""

from __future__ import annotations

from naiad.analyze.search.search import MeasurementRequest, Search, Utility
from naiad.analyze.space.space import Point, Space

_SCALE = 2


def quick(space: Space, utility: Utility) -> Search:
    """Climb from the least values, one dimension after another, with steps that are halved where none pays."""
    here: Point = tuple(0 for _ in space.dimensions)
    seen: dict[Point, float] = {}
    steps = [max((len(dimension.values) - 1) // 2, 1) for dimension in space.dimensions]
    yield from _value(space, utility, here, seen, steps)
    while any(steps):
        before = here
        for place in range(len(space.dimensions)):
            if not steps[place]:
                continue
            for step in (steps[place], -steps[place]):
                there = _moved(space, here, place, step)
                if there not in seen:
                    yield from _value(space, utility, there, seen, steps)
                if seen[there] > seen[here]:
                    here = there
                    break
        if here == before:
            steps = [step // 2 for step in steps]


def _value(space: Space, utility: Utility, point: Point, seen: dict[Point, float], steps: list[int]) -> Search:
    left = 2 * sum(step.bit_length() for step in steps)
    measured = yield MeasurementRequest(space.trial(point), _SCALE, left, "climb")
    value = utility(measured)
    seen[point] = float("-inf") if value is None else value


def _moved(space: Space, point: Point, place: int, step: int) -> Point:
    last = len(space.dimensions[place].values) - 1
    moved = list(point)
    moved[place] = min(max(point[place] + step, 0), last)
    return tuple(moved)
