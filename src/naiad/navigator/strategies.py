"""The original's strategies: classes whose objects say which format is the best."""

from __future__ import annotations

from collections.abc import Sequence

from naiad.convert.choose import choose
from naiad.convert.results import FormatResult
from naiad.convert.settings import Strategy
from naiad.navigator.formats import formats_of_key


class RuntimeSearchStrategy:
    """Base of all strategies."""

    strategy = Strategy.MAX_THROUGHPUT
    budget_ms = 0.0

    def find(self, results: Sequence[FormatResult]) -> str:
        """The best format's name; empty when there is none."""
        return choose(results, self.strategy, self.budget_ms)[0]


class MaxThroughputStrategy(RuntimeSearchStrategy):
    """The greatest throughput of any batch size."""


class MinLatencyStrategy(RuntimeSearchStrategy):
    """The least latency of the smallest batch."""

    strategy = Strategy.MIN_LATENCY


class MaxThroughputAndMinLatencyStrategy(RuntimeSearchStrategy):
    """A format that has both; none when different formats have them."""

    def find(self, results: Sequence[FormatResult]) -> str:
        """The best format's name; empty when there is none."""
        fastest = choose(results, Strategy.MAX_THROUGHPUT, 0.0)[0]
        return fastest if fastest == choose(results, Strategy.MIN_LATENCY, 0.0)[0] else ""


class MaxThroughputWithLatencyBudgetStrategy(RuntimeSearchStrategy):
    """The greatest throughput whose p99 is within ``latency_budget`` milliseconds."""

    strategy = Strategy.LATENCY_BUDGET

    def __init__(self, latency_budget: float) -> None:
        self.budget_ms = latency_budget


class SelectedRuntimeStrategy(RuntimeSearchStrategy):
    """One format by Naiad's name or the original's key; ``runner_name`` has no effect."""

    def __init__(self, model_key: str, runner_name: str = "") -> None:
        self.model_key = model_key

    def find(self, results: Sequence[FormatResult]) -> str:
        """The format's name, when it was made."""
        made = {one.target for one in results if one.is_made}
        return next((target for target in formats_of_key(self.model_key) if target in made), "")


DEFAULT = (MaxThroughputAndMinLatencyStrategy(), MinLatencyStrategy())
"""Tried in this order when a caller names none."""
