"""``MetricFamily`` and its metrics, which the server shows among its own."""

from __future__ import annotations

import itertools
from enum import IntEnum
from typing import Any

from .asks import ask, tell
from .errors import TritonModelException

_family_numbers = itertools.count(1)
_metric_numbers = itertools.count(1)


class MetricKind(IntEnum):
    """What a metric may do."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


class Metric:
    """One metric of a family, told apart from the others by its labels. Made by ``MetricFamily.Metric``."""

    __slots__ = ("_cleared", "_kind", "_number")

    def __init__(self, kind: MetricKind, number: int) -> None:
        self._kind = kind
        self._number = number
        self._cleared = False

    def increment(self, value: float) -> None:
        """Add to a counter or a gauge.

        Raises:
            TritonModelException: a counter would fall, or it is a histogram, or its family was deleted.
        """
        failure = "Failed to increment metric value"
        self._check(failure, MetricKind.HISTOGRAM, "Increment")
        if self._kind == MetricKind.COUNTER and value < 0:
            raise TritonModelException(
                f"{failure}: TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative "
                f"values, found {value}"
            )
        tell("metric_increment", metric=self._number, by=float(value))

    def set(self, value: float) -> None:
        """Set a gauge.

        Raises:
            TritonModelException: it is no gauge, or its family was deleted.
        """
        failure = "Failed to set metric value"
        self._check(failure, MetricKind.COUNTER, "Set")
        self._check(failure, MetricKind.HISTOGRAM, "Set")
        tell("metric_set", metric=self._number, to=float(value))

    def observe(self, value: float) -> None:
        """Add an observation to a histogram.

        Raises:
            TritonModelException: it is no histogram, or its family was deleted.
        """
        failure = "Failed to observe metric value"
        self._check(failure, MetricKind.COUNTER, "Observe")
        self._check(failure, MetricKind.GAUGE, "Observe")
        tell("metric_observe", metric=self._number, value=float(value))

    def value(self) -> float:
        """The value of a counter or a gauge.

        Raises:
            TritonModelException: it is a histogram, or its family was deleted.
        """
        failure = "Failed to get metric value"
        self._check(failure, MetricKind.HISTOGRAM, "Value")
        return float(ask(failure, "metric_value", metric=self._number))

    def _check(self, failure: str, unsupported: MetricKind, operation: str) -> None:
        if self._cleared:
            raise TritonModelException(
                f"{failure}: Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The "
                "'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have been deleted."
            )
        if self._kind == unsupported:
            raise TritonModelException(
                f"{failure}: TRITONSERVER_METRIC_KIND_{unsupported.name} does not support {operation}"
            )

    def _clear(self) -> None:
        if not self._cleared:
            self._cleared = True
            tell("metric_delete", metric=self._number)


class MetricFamily:
    """Metrics of one name. Those that live are shown; deleting the family deletes them.

    Raises:
        TritonModelException: a family of the name exists with another kind or description.
    """

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: int) -> None:
        self._metrics: list[Metric] = []
        self._kind = MetricKind(kind)
        self._number = 0
        number = next(_family_numbers)
        ask(
            "Error when creating MetricFamily",
            "metric_family",
            family=number,
            name=name,
            description=description,
            kind=self._kind.name.lower(),
        )
        self._number = number

    def Metric(self, labels: dict[str, str] | None = None, buckets: list[float] | None = None) -> Metric:  # noqa: N802
        """A metric of the family; a histogram needs the upper bounds of its buckets.

        Raises:
            TritonModelException: the labels are no dict, or buckets are missing, unexpected or no list.
        """
        metric = Metric(self._kind, next(_metric_numbers))
        ask(
            "Error when creating Metric",
            "metric",
            metric=metric._number,
            family=self._number,
            labels=_checked_labels(labels),
            buckets=self._checked_buckets(buckets),
        )
        self._metrics.append(metric)
        return metric

    def _checked_buckets(self, buckets: Any) -> list[float] | None:
        if buckets is None:
            if self._kind == MetricKind.HISTOGRAM:
                raise TritonModelException("Failed to create metric. Missing required buckets.")
            return None
        if not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if self._kind != MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        return [float(b) for b in buckets]

    def __del__(self) -> None:
        for metric in self._metrics:
            metric._clear()
        if self._number:
            tell("metric_family_delete", family=self._number)


def _checked_labels(labels: Any) -> dict[str, str]:
    if labels is None:
        return {}
    if not isinstance(labels, dict):
        raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
    for name, value in labels.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TritonModelException(
                f"Failed to create metric. Labels must be texts by name, found {name!r}: {value!r}."
            )
    return labels
