"""``CanaryWatch``: whether a version that has a share of the requests does well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from naiad_provider.metrics import Condition, Counters, counters, first_problem, growth, requests


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a watch: ``reason`` says why the version is not healthy, "" when it is."""

    reason: str


class CanaryWatch:
    """Compares the counters of two versions with those at the beginning.

    Args:
        model: its name on the server.
        version: the new one.
        stable: the one that has the other requests.
        conditions: what the new one has to keep.
        min_requests: how many requests it has to have had at the end, and before a condition counts.
        page: the metrics page at the beginning.
    """

    def __init__(
        self,
        model: str,
        version: int,
        stable: int,
        conditions: Sequence[Mapping[str, Any]],
        min_requests: int,
        page: str,
    ) -> None:
        self._model = model
        self._versions = (version, stable)
        self._conditions = [Condition.read(condition) for condition in conditions]
        self._min_requests = min_requests
        self._before = self._counters(page)

    def look(self, page: str, is_over: bool) -> Verdict | None:
        """The verdict on the present page; None to go on watching."""
        new, stable = (growth(b, n) for b, n in zip(self._before, self._counters(page), strict=True))
        count = requests(new)
        if count >= self._min_requests and (reason := first_problem(self._conditions, new, stable)):
            return Verdict(reason)
        if not is_over:
            return None
        if count < self._min_requests:
            return Verdict(f"it had {count:g} requests, {self._min_requests} are needed to judge it")
        return Verdict("")

    def _counters(self, page: str) -> tuple[Counters, Counters]:
        new, stable = self._versions
        return counters(page, self._model, new), counters(page, self._model, stable)
