"""Every configuration, one after another, each under growing loads where none are listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from naiad.analyze.measurement import Measurement
from naiad.analyze.search.loads import sweep_loads
from naiad.analyze.search.search import MeasurementRequest, Search, Utility
from naiad.analyze.search.work import WorkLeft
from naiad.analyze.space.space import Space

BRUTE_SCALE = 4
"""Windows of four times the shortest length: nothing is measured again."""


def brute(
    space: Space, loads: Sequence[int], is_within: Callable[[Measurement], bool], utility: Utility, binary_steps: int
) -> Search:
    """Measure all points.

    Args:
        loads: what is swept for each of them; empty where the space has the loads.
    """
    if loads:
        trials = [space.trial(point) for point in space.points()]
        yield from sweep_loads(trials, loads, is_within, utility, BRUTE_SCALE, binary_steps)
        return
    points = list(space.points())
    for number, point in enumerate(points):
        left = WorkLeft.of(len(points) - number - 1, BRUTE_SCALE)
        yield MeasurementRequest(space.trial(point), BRUTE_SCALE, left, "all configurations")
