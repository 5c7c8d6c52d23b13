"""Three configurations to choose from: a short single time, much throughput, and the most that keeps a latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from naiad.analyze.measurement import Measurement
from naiad.analyze.result import ModelProfile

_BUDGET: Final = 2.0
"""Without a latency budget the third one may take twice the least latency."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A row that does something best.

    Attributes:
        title: what it does best.
        limit_ms: the p99 latency that it keeps; None where none was set.
    """

    title: str
    row: Measurement
    limit_ms: float | None = None


def recommendations(profile: ModelProfile) -> list[Recommendation]:
    """Up to three, of the configurations that were measured well enough to be believed."""
    rows = _believed(profile)
    if not rows:
        return []
    quickest = min(rows, key=lambda row: row.p99_ms)
    found = [Recommendation("Least latency", quickest)]
    found.append(Recommendation("Most throughput", max(rows, key=lambda row: row.throughput)))
    budgets = [goal.latency_budget_ms for goal in profile.judge.goals if goal.latency_budget_ms is not None]
    limit_ms = min(budgets) if budgets else _BUDGET * quickest.p99_ms
    within = [row for row in rows if row.p99_ms <= limit_ms and (not budgets or profile.judge.is_within(row))]
    if within:
        what = "the latency budget" if budgets else "twice the least latency"
        title = f"Most throughput within {what} ({limit_ms:.3g} ms)"
        found.append(Recommendation(title, max(within, key=lambda row: row.throughput), limit_ms))
    return found


def _believed(profile: ModelProfile) -> Sequence[Measurement]:
    """All loads on the best configurations and on the default."""
    ranked = profile.ranked()
    setups = {row.trial.setup for row in ranked[:3]}
    if profile.default is not None:
        setups.add(profile.default.trial.setup)
    return [row for row in profile.rows if row.trial.setup in setups and not row.error]
