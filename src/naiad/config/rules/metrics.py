"""The metrics section."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from naiad.config.parsing.suggest import did_you_mean
from naiad.config.problems import Violation
from naiad.options.metric_families import HISTOGRAMS


def violations(config: Any) -> Iterator[Violation]:
    """Rules of ``model_metrics``."""
    for index, control in enumerate(config.model_metrics.metric_control):
        path = f"model_metrics.metric_control[{index}]"
        yield from (Violation(path, f"{message} for {config.name}") for message in _control(control))


def remarks(config: Any) -> Iterator[Violation]:
    """Families of metrics that no setting of a model changes: misspelt ones, and those that are no histograms."""
    for index, control in enumerate(config.model_metrics.metric_control):
        family = control.metric_identifier.family
        if family not in HISTOGRAMS:
            path = f"model_metrics.metric_control[{index}].metric_identifier.family"
            hint = did_you_mean(family, HISTOGRAMS) or f", customizable are {', '.join(HISTOGRAMS)}"
            message = f"Metric family '{family}' in 'metric_identifier' of model '{config.name}' is not a customizable"
            yield Violation(path, f"{message} metric{hint}")


def _control(control: Any) -> Iterator[str]:
    if not control.HasField("metric_identifier"):
        yield "metric control must specify 'metric_identifier'"
    elif not control.metric_identifier.family:
        yield "metric identifier must specify non-empty 'family'"
    if not control.HasField("histogram_options"):
        yield "metric control must specify 'histogram_options'"
    elif not control.histogram_options.buckets:
        yield "histogram options must specify non-empty 'buckets'"
    else:
        yield from _buckets(control.metric_identifier.family, list(control.histogram_options.buckets))


def _buckets(family: str, buckets: Sequence[float]) -> Iterator[str]:
    if not all(map(math.isfinite, buckets)):
        yield f"the buckets of '{family}' must be finite: a last one without a bound is always there"
    elif any(low >= high for low, high in pairwise(buckets)):
        yield f"the buckets of '{family}' must grow from one to the next, found {buckets}"
