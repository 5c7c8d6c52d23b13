"""A Gaussian process over the points of a space: what it expects of a point that was not measured, and how sure it is.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 2.1.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LENGTHS: Final = (0.25, 0.6, 1.5, 4.0)
"""Over which part of a dimension values change, as multiples of its extent."""
_NOISE: Final = 0.15
"""The standard deviation of a measurement with the shortest windows, in the utility's unit."""
_JITTER: Final = 1e-6


class Regression:
    """A process that is fitted to measurements.

    Args:
        at: rows of ``coordinates``.
        values: the utilities there.
        weights: how many shortest windows each of them rests on.
        owners: the dimension of each column.
    """

    def __init__(self, at: Floats, values: Floats, weights: Floats, owners: list[int]) -> None:
        self._at = at
        self._mean = float(np.average(values, weights=weights))
        self._values = values - self._mean
        self._variance = max(float(np.var(values)), _NOISE**2)
        self._noise = _NOISE**2 / weights + _JITTER
        self._owners = np.array(owners, dtype=int)
        self._lengths = np.ones(int(self._owners.max(initial=-1)) + 1)
        self._fit()

    def _kernel(self, first: Floats, second: Floats, lengths: Floats) -> Floats:
        scaled = lengths[self._owners] if len(self._owners) else np.ones(0)
        gaps = ((first[:, None, :] - second[None, :, :]) / scaled) ** 2
        found: Floats = self._variance * np.exp(-0.5 * gaps.sum(axis=2))
        return found

    def _likelihood(self, lengths: Floats) -> float:
        covariance = self._kernel(self._at, self._at, lengths) + np.diag(self._noise)
        lower = np.linalg.cholesky(covariance)
        half = np.linalg.solve(lower, self._values)
        return float(-0.5 * half @ half - np.log(np.diag(lower)).sum())

    def _fit(self) -> None:
        """Choose the lengths one dimension after the other, twice."""
        best = self._likelihood(self._lengths)
        for _ in range(2):
            for place in range(len(self._lengths)):
                for length in _LENGTHS:
                    tried = self._lengths.copy()
                    tried[place] = length
                    found = self._likelihood(tried)
                    if found > best:
                        best, self._lengths = found, tried
        covariance = self._kernel(self._at, self._at, self._lengths) + np.diag(self._noise)
        self._lower = np.linalg.cholesky(covariance)
        self._weights = np.linalg.solve(self._lower.T, np.linalg.solve(self._lower, self._values))

    def predict(self, at: Floats) -> tuple[Floats, Floats]:
        """The expected utility at each row, and its standard deviation."""
        between = self._kernel(at, self._at, self._lengths)
        means = between @ self._weights + self._mean
        half = np.linalg.solve(self._lower, between.T)
        variances = np.maximum(self._variance - (half**2).sum(axis=0), 1e-12)
        return means, np.sqrt(variances)


def expected_improvement(means: Floats, deviations: Floats, best: float) -> Floats:
    """By how much each point is expected to be better than the best one."""
    gain = means - best
    z = gain / deviations
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(z / math.sqrt(2)))
    found: Floats = gain * below + deviations * density
    return found
