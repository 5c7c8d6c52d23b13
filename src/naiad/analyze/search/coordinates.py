"""The points of a space as numbers, for a regression."""

from __future__ import annotations

import math

import numpy as np

from naiad.analyze.space.space import Point, Space
from naiad.scheduling.tuning.regression import Floats


def coordinates(space: Space, points: list[Point]) -> tuple[Floats, list[int]]:
    """The points as rows of numbers from 0 to 1, and the dimension that each column stands for."""
    columns, owners = [], []
    for place, dimension in enumerate(space.dimensions):
        chosen = np.array([point[place] for point in points], dtype=float)
        last = max(len(dimension.values) - 1, 1)
        if dimension.is_ordered:
            columns.append(chosen / last)
            owners.append(place)
            continue
        for value in range(len(dimension.values)):
            columns.append((chosen == value) * math.sqrt(0.5))
            owners.append(place)
    return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0)), owners
