"""When requests are due, in nanoseconds after the start of a load. The same seed gives the same schedule."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from naiad.perf.target.protocol import TargetError


def constant_schedule(rate: float) -> Iterator[int]:
    """So many requests a second, evenly spread."""
    return (int(number * 1e9 / rate) for number in itertools.count())


def poisson_schedule(rate: float, seed: int) -> Iterator[int]:
    """So many requests a second on average, each independent of the others: gaps are exponential."""
    source = random.Random(seed)
    due = 0.0
    while True:
        due += source.expovariate(rate) * 1e9
        yield int(due)


def interval_schedule(intervals_us: Sequence[float]) -> Iterator[int]:
    """Gaps one after the other, from the first again after the last."""
    due = 0.0
    for gap in itertools.cycle(intervals_us):
        due += gap * 1e3
        yield int(due)


def fixed_schedule(timestamps_ms: Iterable[float]) -> Iterator[int]:
    """Times as they are given."""
    return (int(time * 1e6) for time in timestamps_ms)


def read_intervals(path: Path) -> list[float]:
    """The gaps in microseconds of a file that has one in each line.

    Raises:
        TargetError: the file cannot be read, a line is no number above 0, or there is none.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"cannot read the request intervals in '{path}': {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            gap = float(line)
        except ValueError:
            gap = -1.0
        if not 0 < gap < 1e15:
            raise TargetError(f"line {number} of '{path}' is '{line[:40]}', expected microseconds above 0")
        found.append(gap)
    if not found:
        raise TargetError(f"'{path}' holds no request intervals: expected one number of microseconds in each line")
    return found


def mean_rate(intervals_us: Sequence[float]) -> float:
    """The requests a second of a schedule of gaps."""
    return 1e6 * len(intervals_us) / sum(intervals_us)
