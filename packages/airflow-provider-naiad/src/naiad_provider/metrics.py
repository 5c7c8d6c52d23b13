"""Counters of model versions on the metrics page, and conditions on how they grow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

REQUESTS: Final = "nv_inference_request_success"
FAILURES: Final = "nv_inference_request_failure"
_LINE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)\{(?P<labels>.*)\} (?P<value>\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Counters = Mapping[str, float]
"""The sum of each counter of one version, by name."""


def counters(page: str, model: str, version: int) -> dict[str, float]:
    """What the metrics page counts for a version of a model; the samples of several labels are summed."""
    found: dict[str, float] = {}
    for line in page.splitlines():
        if (parts := _LINE.fullmatch(line)) is None:
            continue
        labels = dict(_LABEL.findall(parts["labels"]))
        if labels.get("model") == model and labels.get("version") == str(version):
            found[parts["name"]] = found.get(parts["name"], 0.0) + float(parts["value"])
    return found


@dataclass(frozen=True, slots=True)
class Condition:
    """What a new version has to keep while it is watched.

    Attributes:
        metric: the name of a counter on the metrics page.
        per: another counter that its growth is divided by; requests by default.
        at_most: the highest value; None for none.
        at_most_stable: the highest value as a multiple of that of the version that has the other requests.
    """

    metric: str
    per: str = REQUESTS
    at_most: float | None = None
    at_most_stable: float | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Condition:
        """A condition from an argument of an operator.

        Raises:
            ValueError: it is none.
        """
        if unknown := set(given) - {"metric", "per", "at_most", "at_most_stable"}:
            raise ValueError(f"a condition has no field '{min(unknown)}'")
        if not given.get("metric"):
            raise ValueError(f"the condition {dict(given)} names no metric")
        limits = {name: float(given[name]) for name in ("at_most", "at_most_stable") if given.get(name) is not None}
        if not limits:
            raise ValueError(f"the condition on '{given['metric']}' has neither at_most nor at_most_stable")
        return cls(str(given["metric"]), str(given.get("per", REQUESTS)), **limits)

    def written(self) -> dict[str, Any]:
        """The argument that ``read`` takes."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def problem(self, new: Counters, stable: Counters) -> str:
        """Why the growth of the counters breaks it; "" when it does not, or when nothing can be said yet."""
        value, usual = self._value(new), self._value(stable)
        if value is None:
            return ""
        if self.at_most is not None and value > self.at_most:
            return f"{self.metric} per {self.per} is {value:g}, at most {self.at_most:g} is allowed"
        if self.at_most_stable is not None and usual is not None and value > self.at_most_stable * usual:
            return (
                f"{self.metric} per {self.per} is {value:g}, at most {self.at_most_stable:g} times "
                f"the {usual:g} of the stable version is allowed"
            )
        return ""

    def _value(self, grown: Counters) -> float | None:
        base = grown.get(self.per, 0.0)
        return grown.get(self.metric, 0.0) / base if base else None


def growth(before: Counters, now: Counters) -> dict[str, float]:
    """How much each counter has grown; a counter that began again has grown by its value."""
    return {name: value - (was if (was := before.get(name, 0.0)) <= value else 0.0) for name, value in now.items()}


def requests(grown: Counters) -> float:
    """All requests of a version, failed ones included."""
    return grown.get(REQUESTS, 0.0) + grown.get(FAILURES, 0.0)


def first_problem(conditions: Sequence[Condition], new: Counters, stable: Counters) -> str:
    """The first broken condition; "" for none. A version whose requests all fail breaks any."""
    if requests(new) and not new.get(REQUESTS):
        return f"all {requests(new):g} requests failed"
    return next((text for condition in conditions if (text := condition.problem(new, stable))), "")
