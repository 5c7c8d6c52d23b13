"""The goal of a search: objectives with weights, and constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from naiad.analyze.measurement import ALIASES, METRICS
from naiad.config.parsing.suggest import did_you_mean

_KNOWN = (*METRICS, *ALIASES)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit of one metric; a minimum or a maximum."""

    metric: str
    least: float | None = None
    most: float | None = None

    @property
    def text(self) -> str:
        """For people: ``perf_latency_p99 <= 20``."""
        return f"{self.metric} >= {self.least:g}" if self.least is not None else f"{self.metric} <= {self.most:g}"


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal for one model.

    Attributes:
        objectives: metrics with their weights.
        weighting: how much the model counts beside others.
    """

    objectives: Mapping[str, float] = field(default_factory=lambda: {"perf_throughput": 1.0})
    constraints: tuple[Constraint, ...] = ()
    weighting: float = 1.0

    @property
    def latency_budget_ms(self) -> float | None:
        """The limit of the p99 latency, if there is one."""
        limits = [one.most for one in self.constraints if one.metric == "perf_latency_p99" and one.most is not None]
        return min(limits, default=None)


def read_objectives(value: Any, where: str, problems: list[str]) -> dict[str, float]:
    """Objectives from a list of metrics, or from metrics with weights."""
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",")]
    if isinstance(value, Sequence):
        value = {str(name): 1 for name in value}
    if not isinstance(value, Mapping) or not value:
        problems.append(f"{where}: found {value!r}, expected metrics, or metrics with weights")
        return {}
    found = {}
    for name, weight in value.items():
        if not _check_metric(str(name), where, problems):
            continue
        if isinstance(weight, bool) or not isinstance(weight, int | float) or weight <= 0:
            problems.append(f"{where}: the weight of {name} is {weight!r}, expected a number above 0")
            continue
        found[ALIASES.get(str(name), str(name))] = float(weight)
    return found


def read_constraints(value: Any, where: str, problems: list[str]) -> tuple[Constraint, ...]:
    """Constraints from metrics with ``min`` or ``max``."""
    if not isinstance(value, Mapping):
        problems.append(f"{where}: found {value!r}, expected metrics with min or max")
        return ()
    found = []
    for name, limits in value.items():
        if not _check_metric(str(name), where, problems):
            continue
        metric = ALIASES.get(str(name), str(name))
        if not isinstance(limits, Mapping) or not limits or not set(limits) <= {"min", "max"}:
            problems.append(f"{where}: {name} is {limits!r}, expected min: NUMBER or max: NUMBER")
            continue
        for word, limit in limits.items():
            if isinstance(limit, bool) or not isinstance(limit, int | float):
                problems.append(f"{where}: {word} of {name} is {limit!r}, expected a number")
                continue
            least, most = (float(limit), None) if word == "min" else (None, float(limit))
            found.append(Constraint(metric, least, most))
    return tuple(found)


def _check_metric(name: str, where: str, problems: list[str]) -> bool:
    if name in _KNOWN:
        return True
    if "token" in name:
        problems.append(f"{where}: {name} is a metric of language models, which naiad perf measures: use naiad perf")
        return False
    problems.append(f"{where}: unknown metric '{name}'{did_you_mean(name, _KNOWN)}")
    return False
