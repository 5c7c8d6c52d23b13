"""Metrics that models create: families by name, shared by all that request the same one. For the event loop only.

Source: ``metric_family.cc`` of the reference, for the kinds, what each can do, and the texts in capital letters;
Prometheus' data model for names.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import ClassVar, Final

from naiad.errors import AlreadyExistsError, InvalidArgumentError, UnsupportedError
from naiad.telemetry.metrics.exposition import braced, label_text, number_text

OWN_PREFIXES: Final = (
    "naiad_",
    "nv_cache_",
    "nv_cpu_",
    "nv_energy_",
    "nv_gpu_",
    "nv_inference_",
    "nv_model_load_",
    "nv_pinned_memory_",
)
"""The prefixes of the server's own metrics."""
MAX_NAME: Final = 500
MAX_DESCRIPTION: Final = 10_000
MAX_LABELS: Final = 2_000
"""Characters of a metric's labels, with their names, all together."""
MAX_BUCKETS: Final = 1_000

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HISTOGRAM_SUFFIXES: Final = ("_bucket", "_sum", "_count")

Key = tuple[tuple[str, str], ...]


class CustomMetricKind(StrEnum):
    """The operations of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class CustomMetric:
    """A metric of a family. Each kind supports some of the operations and refuses the others.

    Attributes:
        key: its labels in alphabetical order.
        holders: the number of users; the metric is removed with the last.
    """

    __slots__ = ("_labels", "holders", "key")
    kind: ClassVar[CustomMetricKind]

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.key: Key = tuple(sorted(labels.items()))
        self.holders = 0
        # Written once here, not at each scrape.
        self._labels = braced(label_text(labels))

    @property
    def lines(self) -> int:
        """How many lines of the page it takes."""
        return 1

    def increment(self, by: float) -> None:
        """Add to it.

        Raises:
            UnsupportedError: the kind cannot; so for the other methods.
        """
        raise self._unsupported("Increment")

    def set(self, to: float) -> None:
        """Replace its value."""
        raise self._unsupported("Set")

    def observe(self, value: float) -> None:
        """Count a value in its bucket."""
        raise self._unsupported("Observe")

    def read(self) -> float:
        """Its value."""
        raise self._unsupported("Value")

    def text(self, name: str) -> str:
        """Its lines of the page; ``name`` is that of its family."""
        return f"{name}{self._labels} {number_text(self.read())}\n"

    def _unsupported(self, operation: str) -> UnsupportedError:
        return UnsupportedError(f"TRITONSERVER_METRIC_KIND_{self.kind.name} does not support {operation}")


class Counter(CustomMetric):
    """A metric that only grows."""

    __slots__ = ("_value",)
    kind = CustomMetricKind.COUNTER

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self._value = 0.0

    def increment(self, by: float) -> None:
        """Add to it.

        Raises:
            InvalidArgumentError: ``by`` is negative.
        """
        if by < 0:
            raise InvalidArgumentError(
                "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values, "
                f"found {by:g}"
            )
        self._value += by

    def read(self) -> float:
        """Its value."""
        return self._value


class Gauge(CustomMetric):
    """A metric that goes up and down."""

    __slots__ = ("_value",)
    kind = CustomMetricKind.GAUGE

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self._value = 0.0

    def increment(self, by: float) -> None:
        """Add to it; ``by`` may be negative."""
        self._value += by

    def set(self, to: float) -> None:
        """Replace its value."""
        self._value = to

    def read(self) -> float:
        """Its value."""
        return self._value


class Histogram(CustomMetric):
    """Counts values by buckets, each of which has an upper bound that belongs to it."""

    __slots__ = ("_bounds", "_buckets", "_counts", "_sum")
    kind = CustomMetricKind.HISTOGRAM

    def __init__(self, labels: Mapping[str, str], bounds: Sequence[float]) -> None:
        super().__init__(labels)
        self._bounds = tuple(bounds)
        self._buckets = [braced(label_text(labels), f'le="{number_text(b)}"') for b in (*bounds, math.inf)]
        self._counts = [0] * len(self._buckets)
        self._sum = 0.0

    @property
    def lines(self) -> int:
        """How many lines of the page it takes."""
        return len(self._counts) + 2

    def observe(self, value: float) -> None:
        """Count a value in its bucket; NaN belongs to none but the last."""
        at = len(self._bounds) if math.isnan(value) else bisect_left(self._bounds, value)
        self._counts[at] += 1
        self._sum += value

    def text(self, name: str) -> str:
        """Its lines of the page; ``name`` is that of its family."""
        below = list(accumulate(self._counts))
        buckets = [f"{name}_bucket{b} {n}\n" for b, n in zip(self._buckets, below, strict=True)]
        ends = f"{name}_sum{self._labels} {number_text(self._sum)}\n{name}_count{self._labels} {below[-1]}\n"
        return "".join((*buckets, ends))


class Family:
    """The metrics of one name.

    Attributes:
        metrics: the metrics in use, by their labels.
        holders: the number of users of the family.
    """

    __slots__ = ("description", "holders", "kind", "metrics", "name")

    def __init__(self, name: str, description: str, kind: CustomMetricKind) -> None:
        self.name = name
        self.description = description
        self.kind = kind
        self.metrics: dict[Key, CustomMetric] = {}
        self.holders = 0

    def take(self, labels: Mapping[str, str], buckets: Sequence[float] | None) -> CustomMetric:
        """The metric with these labels, created if it does not exist. Each call counts a user, who releases it.

        An existing histogram keeps its buckets, as in the reference.

        Raises:
            InvalidArgumentError: labels or buckets are not allowed.
        """
        # Sorted: two models may name the same labels in another order.
        metric = self.metrics.get(tuple(sorted(labels.items()))) or self._make(labels, buckets)
        self.metrics[metric.key] = metric
        metric.holders += 1
        return metric

    def release(self, metric: CustomMetric) -> None:
        """End one use of a metric. The last one removes it."""
        metric.holders -= 1
        if not metric.holders:
            del self.metrics[metric.key]

    def _make(self, labels: Mapping[str, str], buckets: Sequence[float] | None) -> CustomMetric:
        self._check_labels(labels)
        if self.kind is CustomMetricKind.HISTOGRAM:
            return Histogram(labels, self._bounds(buckets))
        if buckets is not None:
            raise InvalidArgumentError(f"metric '{self.name}' is a {self.kind} and has no buckets")
        return Counter(labels) if self.kind is CustomMetricKind.COUNTER else Gauge(labels)

    def _check_labels(self, labels: Mapping[str, str]) -> None:
        for label in labels:
            if not _LABEL_NAME.fullmatch(label) or label.startswith("__"):
                raise InvalidArgumentError(
                    f"Invalid label name: '{label}' of metric '{self.name}': expected letters, digits and '_', not a "
                    "digit first and not '__'"
                )
        if self.kind is CustomMetricKind.HISTOGRAM and "le" in labels:
            raise InvalidArgumentError(
                f"Invalid label name: 'le' of histogram '{self.name}' is what its own buckets are labelled with"
            )
        if (size := sum(len(name) + len(value) for name, value in labels.items())) > MAX_LABELS:
            raise InvalidArgumentError(
                f"the labels of metric '{self.name}' have {size} characters, at most {MAX_LABELS} are allowed"
            )

    def _bounds(self, buckets: Sequence[float] | None) -> Sequence[float]:
        if buckets is None:
            raise InvalidArgumentError("Bucket boundaries not found in Metric args.")
        if len(buckets) > MAX_BUCKETS:
            raise InvalidArgumentError(
                f"histogram '{self.name}' has {len(buckets)} buckets, at most {MAX_BUCKETS} are allowed"
            )
        if any(map(math.isnan, buckets)) or any(low >= high for low, high in pairwise(buckets)):
            raise InvalidArgumentError(
                f"Bucket Boundaries must be strictly sorted: found {list(buckets)} for histogram '{self.name}'"
            )
        # Every histogram ends in a bucket without a bound.
        return buckets[:-1] if buckets and buckets[-1] == math.inf else buckets


class CustomMetrics:
    """All families in use, by name."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}

    def take(self, name: str, description: str, kind: CustomMetricKind) -> Family:
        """The family of that name, created if it does not exist. Each call counts a user, who releases it.

        An existing family keeps its description, as in the reference.

        Raises:
            AlreadyExistsError: the name belongs to a family of another kind, or the server itself uses it.
            InvalidArgumentError: the name is not allowed.
        """
        family = self.families.get(name) or self._make(name, description, kind)
        if family.kind is not kind:
            raise AlreadyExistsError(
                f"Family name already exists with different type: '{name}' is a {family.kind} and cannot be a {kind}"
            )
        self.families[name] = family
        family.holders += 1
        return family

    def release(self, family: Family) -> None:
        """End one use of a family, after those of its metrics. The last one removes it."""
        family.holders -= 1
        if not family.holders:
            del self.families[family.name]

    def _make(self, name: str, description: str, kind: CustomMetricKind) -> Family:
        if not _NAME.fullmatch(name) or name.startswith("__") or len(name) > MAX_NAME:
            raise InvalidArgumentError(
                f"Invalid metric name: '{name[:MAX_NAME]}': expected letters, digits, '_' and ':', not a digit first "
                f"and not '__', at most {MAX_NAME} characters"
            )
        if name.startswith(OWN_PREFIXES):
            raise AlreadyExistsError(
                f"metric '{name}' would be taken for one of the server's own; choose a name that does not begin with "
                f"{', '.join(OWN_PREFIXES)}"
            )
        if len(description) > MAX_DESCRIPTION:
            raise InvalidArgumentError(
                f"the description of metric '{name}' has {len(description)} characters, at most {MAX_DESCRIPTION} are "
                "allowed"
            )
        self._check_suffixes(name, kind)
        return Family(name, description, kind)

    def _check_suffixes(self, name: str, kind: CustomMetricKind) -> None:
        """Refuse a name with which a metric's line would look like a line of a histogram."""
        for suffix in _HISTOGRAM_SUFFIXES:
            histogram = self.families.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if histogram is not None and histogram.kind is CustomMetricKind.HISTOGRAM:
                raise AlreadyExistsError(f"metric '{name}' would be taken for a part of histogram '{histogram.name}'")
            if kind is CustomMetricKind.HISTOGRAM and name + suffix in self.families:
                raise AlreadyExistsError(f"a part of histogram '{name}' would be taken for metric '{name}{suffix}'")
