"""When a level counts as measured: the last three windows agree on the rate and on the latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from naiad.perf.results import Window

WINDOWS: Final = 3
"""So many windows in a row have to agree."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far three windows differ: the greatest over the least, less 1. None where one of them has no request."""

    rate: float | None
    latency: float | None


def latency_of(window: Window, percentile: int | None) -> float:
    """The latency in ns that has to settle: of a percentile, or the average."""
    return window.latency.mean if percentile is None else window.latency.percentile(percentile)


def spread(windows: Sequence[Window], percentile: int | None) -> Spread:
    """How far windows differ."""
    if not windows or not all(window.requests for window in windows):
        return Spread(None, None)
    return Spread(
        _ratio([window.request_rate for window in windows]), _ratio([latency_of(w, percentile) for w in windows])
    )


def _ratio(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1 if min(values) > 0 else 0.0


def is_stable(windows: Sequence[Window], percentile: int | None, stability_percentage: float) -> bool:
    """Whether the last three windows agree within the percentage."""
    if len(windows) < WINDOWS:
        return False
    found = spread(windows[-WINDOWS:], percentile)
    # A little more, for what binary fractions lose.
    limit = stability_percentage / 100 + 1e-9
    return found.rate is not None and found.latency is not None and max(found.rate, found.latency) <= limit


def best_windows(windows: Sequence[Window], percentile: int | None) -> Sequence[Window]:
    """The three windows in a row that differ least; all of them when there are fewer, the last ones at a tie."""
    best, least = windows[-WINDOWS:], float("inf")
    for end in range(len(windows), WINDOWS - 1, -1):
        group = windows[end - WINDOWS : end]
        found = spread(group, percentile)
        if found.rate is None or found.latency is None:
            continue
        if max(found.rate, found.latency) < least:
            best, least = group, max(found.rate, found.latency)
    return best


def unstable_reason(windows: Sequence[Window], percentile: int | None, stability_percentage: float) -> str:
    """Why windows do not agree, for a report."""
    if not any(window.requests for window in windows):
        return "no request was completed"
    if len(windows) < WINDOWS:
        return f"{len(windows)} window{'s' * (len(windows) != 1)}, expected at least {WINDOWS}"
    best = best_windows(windows, percentile)
    found = spread(best, percentile)
    if found.rate is None or found.latency is None:
        empty = sum(not window.requests for window in best)
        return f"{empty} of {len(best)} windows completed no request: use a longer --measurement-interval"
    name = "average latency" if percentile is None else f"p{percentile} latency"
    limit = stability_percentage / 100
    parts = [
        f"{what} differs by {value:.0%}"
        for what, value in (("rate", found.rate), (name, found.latency))
        if value > limit
    ]
    if not parts:
        parts = [_drift(windows, percentile, limit, name)]
    return f"{' and '.join(parts)} over {WINDOWS} windows, more than {stability_percentage:g}%"


def _drift(windows: Sequence[Window], percentile: int | None, limit: float, name: str) -> str:
    found = spread(windows[-WINDOWS:], percentile)
    if found.rate is not None and found.rate > limit:
        return f"rate differs by {found.rate:.0%}"
    value = found.latency or 0.0
    return f"{name} differs by {value:.0%}"
