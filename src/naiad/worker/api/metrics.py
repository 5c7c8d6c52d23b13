"""``MetricFamily`` and its metrics, which the server shows among its own."""

from __future__ import annotations

import itertools
import math
from enum import IntEnum
from typing import Any, Tuple

from ..ipc.errors import TritonModelException, as_text
from .control import notify, send_request

_family_numbers = itertools.count(1)
_metric_numbers = itertools.count(1)
_Labels = Tuple[Tuple[str, str], ...]


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
        # Without a reply: a model that counts in its inner loop must not wait for the server each time.
        notify("metric_increment", metric=self._number, by=_as_json(value))

    def set(self, value: float) -> None:
        """Set a gauge.

        Raises:
            TritonModelException: it is no gauge, or its family was deleted.
        """
        failure = "Failed to set metric value"
        self._check(failure, MetricKind.COUNTER, "Set")
        self._check(failure, MetricKind.HISTOGRAM, "Set")
        notify("metric_set", metric=self._number, to=_as_json(value))

    def observe(self, value: float) -> None:
        """Add an observation to a histogram.

        Raises:
            TritonModelException: it is no histogram, or its family was deleted.
        """
        failure = "Failed to observe metric value"
        self._check(failure, MetricKind.COUNTER, "Observe")
        self._check(failure, MetricKind.GAUGE, "Observe")
        notify("metric_observe", metric=self._number, value=_as_json(value))

    def value(self) -> float:
        """The value of a counter or a gauge.

        Raises:
            TritonModelException: it is a histogram, or its family was deleted.
        """
        failure = "Failed to get metric value"
        self._check(failure, MetricKind.HISTOGRAM, "Value")
        return float(send_request(failure, "metric_value", metric=self._number))

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
            notify("metric_delete", metric=self._number)


class MetricFamily:
    """Metrics of one name. The server shows them until they are deleted; deleting the family deletes them all.

    Raises:
        TritonModelException: a family of the name exists with another kind, or the name is not allowed.
    """

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: int) -> None:
        # Both first: ``__del__`` reads them, also of a family that is refused below.
        self._metrics: dict[_Labels, Metric] = {}
        self._number = 0
        try:
            self._kind = MetricKind(kind)
        except ValueError:
            raise TritonModelException(
                f"Error when creating MetricFamily: the kind must be COUNTER, GAUGE or HISTOGRAM, found {kind!r}"
            ) from None
        number = next(_family_numbers)
        send_request(
            "Error when creating MetricFamily",
            "metric_family",
            family=number,
            name=as_text(name, "MetricFamily: the name"),
            description=as_text(description, "MetricFamily: the description"),
            kind=self._kind.name.lower(),
        )
        # Not before: a family that was refused has nothing to delete.
        self._number = number

    def Metric(self, labels: dict[str, str] | None = None, buckets: list[float] | None = None) -> Metric:  # noqa: N802
        """A metric of the family, the same one for the same labels; a histogram needs its buckets' upper bounds.

        Raises:
            TritonModelException: labels or buckets are missing, unexpected or not allowed.
        """
        named, bounds = _checked_labels(labels), self._checked_buckets(buckets)
        key = tuple(sorted(named.items()))
        known = self._metrics.get(key)
        if known is not None:
            return known
        metric = Metric(self._kind, next(_metric_numbers))
        failure = "Error when creating Metric"
        send_request(failure, "metric", metric=metric._number, family=self._number, labels=named, buckets=bounds)
        kept = self._metrics.setdefault(key, metric)
        if kept is not metric:
            # Another thread was faster.
            metric._clear()
        return kept

    def _checked_buckets(self, buckets: Any) -> list[float | str] | None:
        if buckets is None:
            if self._kind == MetricKind.HISTOGRAM:
                raise TritonModelException("Failed to create metric. Missing required buckets.")
            return None
        if not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if self._kind != MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        return [_as_json(bound) for bound in buckets]

    def __del__(self) -> None:
        for metric in self._metrics.values():
            metric._clear()
        if self._number:
            notify("metric_family_delete", family=self._number)


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


def _as_json(value: float) -> float | str:
    """A number for the server. JSON has no words for infinity and NaN."""
    number = float(value)
    return number if math.isfinite(number) else repr(number)
