"""The metrics of one worker, which are shown on the server's page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from naiad.errors import InvalidArgumentError, NaiadError, UnavailableError, UnsupportedError
from naiad.telemetry.metrics.custom import CustomMetric, CustomMetricKind, CustomMetrics, Family

MAX_FAMILIES: Final = 1_000
MAX_LINES: Final = 10_000
"""The most lines of the page that the metrics of one worker take."""


@dataclass(slots=True)
class _Held:
    """A family of a worker, and the numbers of the metrics that it made with it."""

    family: Family
    metrics: set[int] = field(default_factory=set)


class WorkerMetrics:
    """The metrics of one worker. What it has not deleted is deleted with it.

    ``shown`` holds the metrics of all workers.
    """

    def __init__(self, shown: CustomMetrics) -> None:
        self._shown = shown
        self._families: dict[int, _Held] = {}
        self._metrics: dict[int, tuple[_Held, CustomMetric]] = {}
        self._lines = 0

    def handle(
        self, content: Mapping[str, Any], succeed: Callable[[Any], None], fail: Callable[[NaiadError], None]
    ) -> bool:
        """Reply to a request now; False when it is not about metrics.

        Raises:
            NaiadError: the reply is that error.
        """
        request = self._requests.get(content.get("what"))
        if request is None:
            return False
        succeed(request(self, content))
        return True

    def notify(self, content: Mapping[str, Any]) -> None:
        """Change a metric or delete one.

        Raises:
            NaiadError: that cannot be done.
        """
        notification = self._notifications.get(content.get("what"))
        if notification is None:
            raise UnsupportedError(f"a model told '{content.get('what', '')}', which means nothing here")
        notification(self, content)

    def close(self) -> None:
        """Delete all metrics that are left. The worker that follows begins anew."""
        for number in list(self._families):
            self._remove_family(number)

    def _add_family(self, content: Mapping[str, Any]) -> None:
        number, name = content["family"], str(content["name"])
        if number in self._families:
            raise InvalidArgumentError(f"metric family {number} of a model, '{name}', exists")
        if len(self._families) >= MAX_FAMILIES:
            raise UnavailableError(
                f"metric family '{name}' is one too many: the process of a model may have {MAX_FAMILIES}; make them in "
                "initialize() and use them again"
            )
        kind = CustomMetricKind(content["kind"])
        self._families[number] = _Held(self._shown.take(name, str(content["description"]), kind))

    def _add(self, content: Mapping[str, Any]) -> None:
        held, number, buckets = self._families[content["family"]], content["metric"], content.get("buckets")
        family = held.family
        if number in self._metrics:
            raise InvalidArgumentError(f"metric {number} of a model, of family '{family.name}', exists")
        labels = {str(name): str(value) for name, value in content["labels"].items()}
        metric = family.take(labels, None if buckets is None else [float(bound) for bound in buckets])
        # Counted after ``take``, which knows how many lines the metric's buckets make.
        if self._lines + metric.lines > MAX_LINES:
            family.release(metric)
            raise UnavailableError(
                f"a metric of family '{family.name}' is one too many: those of a model's process may take {MAX_LINES} "
                "lines of the page; labels must not have new values all the time"
            )
        self._lines += metric.lines
        self._metrics[number] = (held, metric)
        held.metrics.add(number)

    def _increment(self, content: Mapping[str, Any]) -> None:
        self._find(content).increment(float(content["by"]))

    def _set(self, content: Mapping[str, Any]) -> None:
        self._find(content).set(float(content["to"]))

    def _observe(self, content: Mapping[str, Any]) -> None:
        self._find(content).observe(float(content["value"]))

    def _delete(self, content: Mapping[str, Any]) -> None:
        self._remove(content["metric"])

    def _delete_family(self, content: Mapping[str, Any]) -> None:
        self._remove_family(content["family"])

    def _find(self, content: Mapping[str, Any]) -> CustomMetric:
        found = self._metrics.get(content["metric"])
        if found is None:
            raise InvalidArgumentError(f"metric {content['metric']} of a model was deleted or never made")
        return found[1]

    def _value(self, content: Mapping[str, Any]) -> float | str:
        value = self._find(content).read()
        # JSON has no words for infinity and NaN.
        return value if math.isfinite(value) else repr(value)

    def _remove(self, number: int) -> None:
        found = self._metrics.pop(number, None)
        if found is None:
            return
        held, metric = found
        held.metrics.discard(number)
        self._lines -= metric.lines
        held.family.release(metric)

    def _remove_family(self, number: int) -> None:
        held = self._families.pop(number, None)
        if held is None:
            return
        # A copy: ``_remove`` removes from the set.
        for metric in list(held.metrics):
            self._remove(metric)
        self._shown.release(held.family)

    # Tables of the class: those of an object would refer back to it.
    _requests: ClassVar[dict[Any, Callable[[Any, Mapping[str, Any]], Any]]] = {
        "metric_family": _add_family,
        "metric": _add,
        "metric_value": _value,
    }
    _notifications: ClassVar[dict[Any, Callable[[Any, Mapping[str, Any]], None]]] = {
        "metric_increment": _increment,
        "metric_set": _set,
        "metric_observe": _observe,
        "metric_delete": _delete,
        "metric_family_delete": _delete_family,
    }
