"""Counters of shadow traffic: the differences between the responses of a shadow version and those sent to callers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from naiad.telemetry.metrics.exposition import braced, label_text

BUCKETS: Final = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Upper bounds of the histogram of largest absolute differences; a last one without a bound follows."""


@dataclass(slots=True)
class ShadowStatistics:
    """Counters of one shadow of a model.

    Attributes:
        in_flight: requests that are being copied, or executed by the shadow, now.
        compared: responses that were compared with those of the serving version.
        differing: compared responses that differ by more than the tolerance, or in name, shape or datatype.
        errors: requests that the shadow failed.
        skipped: requests not sent to the shadow, since too many were in flight or since it accepted none.
        ns: the sum of its response times, of all compared requests.
        largest: the largest difference of two numbers so far; infinite where two cannot be subtracted.
        buckets: compared responses by their largest difference, see ``BUCKETS``.
        sum: of the finite largest differences.
    """

    in_flight: int = 0
    compared: int = 0
    differing: int = 0
    errors: int = 0
    skipped: int = 0
    ns: int = 0
    largest: float = 0.0
    sum: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))

    def count(self, difference: float, tolerance: float, ns: int) -> None:
        """Count a compared response; ``difference`` is infinite where responses cannot be subtracted."""
        self.compared += 1
        self.ns += ns
        self.differing += difference > tolerance
        self.largest = max(self.largest, difference)
        # One infinite difference would make the sum infinite for ever.
        if math.isfinite(difference):
            self.sum += difference
        self.buckets[next((i for i, bound in enumerate(BUCKETS) if difference <= bound), len(BUCKETS))] += 1

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the API; an infinite difference is null."""
        return {
            "in_flight": self.in_flight,
            "compared": self.compared,
            "differing": self.differing,
            "errors": self.errors,
            "skipped": self.skipped,
            "largest_difference": self.largest if math.isfinite(self.largest) else None,
            "mean_latency_us": self.ns // 1000 // self.compared if self.compared else 0,
        }


class ShadowSeries(NamedTuple):
    """The counters of the shadow ``version`` of a model."""

    model: str
    version: int
    statistics: ShadowStatistics


_COUNTS: Final = (
    ("compared", "naiad_shadow_compared", "Answers of a shadow version that were compared with the answers given"),
    ("differing", "naiad_shadow_differing", "Compared answers that differ by more than the tolerance"),
    ("errors", "naiad_shadow_errors", "Requests that a shadow version failed"),
    ("skipped", "naiad_shadow_skipped", "Requests that a shadow version did not get, since too many were under way"),
)
_LATENCY: Final = ("naiad_shadow_duration_us", "Microseconds from sending requests to a shadow version to its answers")
_DIFFERENCE: Final = ("naiad_shadow_difference", "Largest absolute difference of two numbers of one compared answer")


def blocks(series: Sequence[ShadowSeries]) -> Iterator[str]:
    """The metrics of all shadows in the text exposition format; nothing when there is no shadow."""
    if not series:
        return
    shown = [({"model": s.model, "version": str(s.version)}, s.statistics) for s in series]
    for attribute, name, help_line in _COUNTS:
        yield _head(name, "counter", help_line) + "".join(
            f"{name}{_written(labels)} {getattr(found, attribute)}\n" for labels, found in shown
        )
    name, help_line = _LATENCY
    yield _head(name, "counter", help_line) + "".join(f"{name}{_written(la)} {s.ns // 1000}\n" for la, s in shown)
    name, help_line = _DIFFERENCE
    yield _head(name, "histogram", help_line) + "".join(_histogram(name, labels, found) for labels, found in shown)


def _histogram(name: str, labels: Mapping[str, str], found: ShadowStatistics) -> str:
    lines: list[str] = []
    below = 0
    for bound, count in zip((*BUCKETS, math.inf), found.buckets, strict=True):
        below += count
        edge = "+Inf" if math.isinf(bound) else f"{bound:g}"
        lines.append(f"{name}_bucket{_written({**labels, 'le': edge})} {below}\n")
    lines.append(f"{name}_sum{_written(labels)} {found.sum}\n{name}_count{_written(labels)} {below}\n")
    return "".join(lines)


def _head(name: str, kind: str, help_line: str) -> str:
    return f"# HELP {name} {help_line}\n# TYPE {name} {kind}\n"


def _written(labels: Mapping[str, str]) -> str:
    return braced(label_text(labels))
