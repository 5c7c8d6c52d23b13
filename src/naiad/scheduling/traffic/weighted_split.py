"""Splits of requests in fixed proportions, without chance: pure decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")
_PARTS: Final = 1_000_000


class WeightedSplit(Generic[_T]):
    """Returns its items in proportion to their weights: smooth weighted round robin, as nginx has it.

    In any run as long as the sum of the weights, each item comes exactly as often as its weight, evenly spread.
    """

    __slots__ = ("_current", "_items", "_total", "_weights")

    def __init__(self, shares: Sequence[tuple[_T, int]]) -> None:
        self._items = [item for item, _ in shares]
        self._weights = [weight for _, weight in shares]
        self._current = [0] * len(shares)
        self._total = sum(self._weights)

    def take(self) -> _T:
        """The next item."""
        current = self._current
        best = 0
        for index, weight in enumerate(self._weights):
            current[index] += weight
            if current[index] > current[best]:
                best = index
        current[best] -= self._total
        return self._items[best]


class Fraction:
    """Is True for a fraction of its calls, evenly spread. Exact to a millionth."""

    __slots__ = ("_done", "_parts")

    def __init__(self, fraction: float) -> None:
        # Integers do not drift as sums of floats do. At least one part: a tiny fraction still takes some calls.
        self._parts = max(1, round(fraction * _PARTS))
        self._done = 0

    def take(self) -> bool:
        """Whether this call is one of them."""
        self._done += self._parts
        if self._done < _PARTS:
            return False
        self._done -= _PARTS
        return True
