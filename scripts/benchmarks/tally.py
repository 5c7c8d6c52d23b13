"""What came of many calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from naiad.perf.histogram import DurationHistogram


@dataclass(slots=True)
class Tally:
    """What came back: right and wrong answers by kind, each kind's first problem in words, latencies."""

    right: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
    latencies: DurationHistogram = field(default_factory=DurationHistogram)

    def count(self, kind: str, problem: str) -> None:
        """Count one call as right, or as wrong with its problem."""
        if not problem:
            self.right[kind] += 1
            return
        self.wrong[kind] += 1
        self.problems.setdefault(kind, problem)

    def summary(self) -> str:
        """Every kind that went wrong: how often, and the first time in words; "" when nothing did."""
        return "; ".join(f"{number} x {kind}: {self.problems[kind]}" for kind, number in self.wrong.items())
