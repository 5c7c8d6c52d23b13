"""The load of a model, in a header of its responses, for callers that request it (ORCA).

A request with ``endpoint-load-metrics-format: text`` or ``json`` gets ``endpoint-load-metrics``.

Source: ORCA ("Open Request Cost Aggregation", gRFC A51). The figures of caches follow the reference's ``orca_http.cc``:
they come from the metrics that the model itself reports.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, Protocol, runtime_checkable

import orjson

from naiad.execution.model.interface import ServingModel
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.telemetry.metrics.model_statistics import ModelStatistics

REQUEST_FIELD: Final = "endpoint-load-metrics-format"
RESPONSE_FIELD: Final = "endpoint-load-metrics"
CACHE_FAMILY: Final = "nv_trt_llm_kv_cache_block_metrics"
_BLOCKS: Final = "kv_cache_block_type"

Figures = Mapping[str, float]


@runtime_checkable
class LoadReporter(Protocol):
    """A model that knows its load: a loaded version, not a route to several."""

    metrics: CustomMetrics

    @property
    def name(self) -> str: ...

    @property
    def statistics(self) -> ModelStatistics:
        """The counters, up to date."""

    @property
    def in_flight(self) -> int:
        """Requests that were accepted and have no final response."""


def load_fields(headers: Mapping[str, str], model: ServingModel) -> tuple[tuple[str, str], ...]:
    """The header fields for the response to a request with ``headers``; none unless these name a known format."""
    wanted = headers.get(REQUEST_FIELD)
    if wanted is None or not isinstance(model, LoadReporter):
        return ()
    if wanted.lower() == "json":
        return ((RESPONSE_FIELD, "JSON " + orjson.dumps({"named_metrics": _figures(model)}).decode()),)
    if wanted.lower() == "text":
        shown = (f"named_metrics.{name}={_shown(value)}" for name, value in _figures(model).items())
        return ((RESPONSE_FIELD, "TEXT " + ", ".join(shown)),)
    return ()


def _shown(value: float) -> str:
    return f"{value:f}" if isinstance(value, float) else str(value)


def _figures(model: LoadReporter) -> dict[str, float]:
    return {
        **_cache_figures(model.metrics, model.name),
        "pending_requests": model.statistics.pending,
        # The two counters are not read at one moment, so the difference may be below zero.
        "running_requests": max(0, model.in_flight - model.statistics.pending),
    }


def _cache_figures(metrics: CustomMetrics, model: str) -> Figures:
    """The figures of the model's cache of keys and values; none unless it reports all that are needed."""
    blocks = dict(_blocks(metrics, model))
    if not {"used", "max", "tokens_per"} <= blocks.keys():
        return {}
    most = blocks["max"]
    utilization = blocks["used"] / most if most else 0.0
    return {"kv_cache_utilization": utilization, "max_token_capacity": int(most * blocks["tokens_per"])}


def _blocks(metrics: CustomMetrics, model: str) -> Iterator[tuple[str, float]]:
    """The figures by their kind, without those of other models."""
    family = metrics.families.get(CACHE_FAMILY)
    for metric in family.metrics.values() if family is not None else ():
        labels = dict(metric.key)
        value = metric.read() if _BLOCKS in labels and labels.get("model", model) == model else math.nan
        if math.isfinite(value) and value >= 0:
            yield labels[_BLOCKS], value
