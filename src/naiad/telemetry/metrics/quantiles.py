"""Quantiles of the last minute: counts by logarithmic buckets, in slots that are dropped as they age.

Source of the window: the reference's summaries, which have an age of 60 s in 5 parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

WINDOW_NS: Final = 60 * 1_000_000_000
SLOTS: Final = 5
_SLOT_NS: Final = WINDOW_NS // SLOTS
_BITS: Final = 5
_PER_OCTAVE: Final = 1 << _BITS
"""Buckets of equal size per doubling: a value is found again within 1.6%."""
_OCTAVES: Final = 42
"""Values up to 2**42 us, which is a month and a half."""
_BUCKETS: Final = _PER_OCTAVE * _OCTAVES
# A bucket is what the first bits of a float are: its exponent, and the beginning of its fraction.
_SHIFT: Final = 52 - _BITS
_FIRST: Final = 1023 << _BITS

Values = np.ndarray[Any, np.dtype[np.float64]]
Counts = np.ndarray[Any, np.dtype[np.int64]]


def no_counts() -> Counts:
    """The counts by bucket of no values."""
    return np.zeros(_BUCKETS, np.int64)


def counts_of(values: Values, weights: Values | None = None) -> Counts:
    """Values from 0 on, counted by bucket, each as often as its weight says."""
    # Values below 1 us share the first bucket with 1 us.
    at = np.minimum((np.maximum(values, 1.0).view(np.int64) >> _SHIFT) - _FIRST, _BUCKETS - 1)
    # With weights the counts are floats.
    return np.bincount(at, weights, _BUCKETS).astype(np.int64, copy=False)


def value_at(counts: Counts, share: float) -> float:
    """The value at a share, 0 to 1, of what was counted; NaN where that is nothing."""
    return _values_at(counts, [share])[0]


def _values_at(counts: Counts, shares: Sequence[float]) -> list[float]:
    below = np.cumsum(counts)
    if not below[-1]:
        return [float("nan")] * len(shares)
    ranks = np.maximum(1, np.ceil(np.asarray(shares) * below[-1]))
    octave, part = np.divmod(np.searchsorted(below, ranks), _PER_OCTAVE)
    return [float(v) for v in np.exp2(octave) * (1 + (part + 0.5) / _PER_OCTAVE)]


class QuantileWindow:
    """The distribution of values from 0 on over the last 48 to 60 seconds."""

    __slots__ = ("_begun_ns", "_slots")

    def __init__(self) -> None:
        # The newest slot comes first; None for a slot without values, so that an idle model costs no memory.
        self._slots: list[Counts | None] = [None] * SLOTS
        self._begun_ns = 0

    def add(self, values: Values, now_ns: int, weights: Values | None = None) -> None:
        """Add values, each as often as its weight says."""
        self._age(now_ns)
        counts = counts_of(values, weights)
        slot = self._slots[0]
        if slot is None:
            self._slots[0] = counts
        else:
            slot += counts

    def quantiles(self, wanted: Sequence[float], now_ns: int) -> list[float]:
        """The values at the ``wanted`` shares, 0 to 1; NaN while there is none in the window."""
        self._age(now_ns)
        filled = [slot for slot in self._slots if slot is not None]
        if not filled:
            return [float("nan")] * len(wanted)
        return _values_at(np.sum(filled, axis=0), wanted)

    def _age(self, now_ns: int) -> None:
        passed = (now_ns - self._begun_ns) // _SLOT_NS
        if passed <= 0:
            return
        empty: list[Counts | None] = [None] * min(passed, SLOTS)
        self._slots = empty + self._slots[: max(0, SLOTS - passed)]
        self._begun_ns = now_ns - (now_ns - self._begun_ns) % _SLOT_NS
