"""Rounds that alternate between the things compared, so that a machine that drifts drifts for all of them."""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def alternate(rounds: int, measures: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Take every measure once per round, in order; one list of ``rounds`` results for each name."""
    results: dict[str, list[T]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            results[name].append(measure())
    return results


def adjacent_pairs(count: int, ours: Callable[[], T], theirs: Callable[[], T]) -> tuple[list[T], list[T]]:
    """``count`` pairs of two measures, one straight after the other; which one is first changes from pair to pair."""
    pairs = []
    for number in range(count):
        if number % 2:
            theirs_now = theirs()
            pairs.append((ours(), theirs_now))
        else:
            pairs.append((ours(), theirs()))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def median(samples: Sequence[T], key: Callable[[T], float]) -> float:
    """The median of one quantity over the rounds."""
    return statistics.median(key(sample) for sample in samples)


def median_ratio(ours: Sequence[T], theirs: Sequence[T], key: Callable[[T], float]) -> float:
    """The median of the ratios ours / theirs, taken pair by pair."""
    return statistics.median(key(a) / key(b) for a, b in zip(ours, theirs, strict=True))


def percentile_us(latencies: array[float], share: float) -> float:
    """The latency in microseconds that ``share`` (0 to 1) of the sorted ``latencies``, in seconds, do not exceed."""
    return latencies[min(len(latencies) - 1, int(share * len(latencies)))] * 1e6
