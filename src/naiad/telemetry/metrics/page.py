"""The metrics page: Prometheus text, written from the engine's counters on request.

Source: ``metrics.cc`` and ``metric_model_reporter.cc`` of the reference for the ``nv_`` names, the Prometheus text
exposition format 0.0.4 for the syntax. Counters keep the reference's names, which do not end in ``_total``, so the text
is written here: the official client library would add the suffix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from naiad.telemetry.metrics.batch_families import batch_blocks
from naiad.telemetry.metrics.custom import CustomMetrics, Family
from naiad.telemetry.metrics.exposition import block, braced, help_text, label_text, rows_block
from naiad.telemetry.metrics.host import HOST, MachineFigures
from naiad.telemetry.metrics.latencies import NO_DISTRIBUTIONS, Latencies, LatencySettings
from naiad.telemetry.metrics.latency_families import latency_blocks
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.metrics.openmetrics import END as OPENMETRICS_END
from naiad.telemetry.metrics.openmetrics import openmetrics_part
from naiad.telemetry.metrics.server_statistics import CacheFigures
from naiad.version import __version__

CONTENT_TYPE = "text/plain; charset=utf-8"

Labels = Mapping[str, str]

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class ModelSeries:
    """The counters of one model version; ``tags`` are the ``metric_tags`` of its configuration.

    ``is_cached``: its responses may come from the response cache.
    ``namespace`` is that of the model with ``--model-namespacing``.
    ``gpu_uuid`` is the GPU of all its instances, "" where they are on several or on none.
    """

    model: str
    version: int
    tags: Mapping[str, str]
    statistics: ModelStatistics
    is_cached: bool = False
    namespace: str = ""
    gpu_uuid: str = ""


@dataclass(frozen=True, slots=True)
class InFlight:
    """The requests in flight, their bytes, the number refused by each bound, and the number of calls that ended before
    their response, by the reason.
    """

    requests: int
    bytes: int
    refused: Mapping[str, int]
    cancelled: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Family:
    """A metric that has one value per model version."""

    name: str
    kind: str
    help: str
    value: Callable[[ModelStatistics], float]


_COUNTS = (
    _Family(
        "nv_inference_request_success",
        "counter",
        "Inference requests answered with a result",
        lambda s: s.success.count,
    ),
    _Family(
        "nv_inference_count",
        "counter",
        "Inferences done: a request with a batch of n counts n, one answered from a cache counts none",
        lambda s: s.inference_count,
    ),
    _Family(
        "nv_inference_exec_count",
        "counter",
        "Runs of the model, each over one batch",
        lambda s: s.execution_count,
    ),
    _Family(
        "nv_inference_pending_request_count",
        "gauge",
        "Requests that wait for the model now",
        lambda s: s.pending,
    ),
    _Family(
        "nv_model_load_duration_secs",
        "gauge",
        "Seconds it took to load the model",
        lambda s: s.load_seconds,
    ),
)

_LATENCIES = (
    _Family(
        "nv_inference_request_duration_us",
        "counter",
        "Microseconds from receiving requests to answering them, of all successful requests together",
        lambda s: s.success.ns // 1000,
    ),
    _Family(
        "nv_inference_queue_duration_us",
        "counter",
        "Microseconds that requests waited in the queue, all together",
        lambda s: s.queue.ns // 1000,
    ),
    _Family(
        "nv_inference_compute_input_duration_us",
        "counter",
        "Microseconds spent on putting inputs together, counted for each request",
        lambda s: s.compute_input.ns // 1000,
    ),
    _Family(
        "nv_inference_compute_infer_duration_us",
        "counter",
        "Microseconds the model ran, counted for each request",
        lambda s: s.compute_infer.ns // 1000,
    ),
    _Family(
        "nv_inference_compute_output_duration_us",
        "counter",
        "Microseconds spent on taking outputs apart, counted for each request",
        lambda s: s.compute_output.ns // 1000,
    ),
)


_CACHED = (
    _Family(
        "nv_cache_num_hits_per_model",
        "counter",
        "Requests answered from the response cache",
        lambda s: s.cache_hit.count,
    ),
    _Family(
        "nv_cache_hit_duration_per_model",
        "counter",
        "Microseconds it took to find them there, all together",
        lambda s: s.cache_hit.ns // 1000,
    ),
    _Family(
        "nv_cache_num_misses_per_model",
        "counter",
        "Requests that were looked up in the response cache in vain, and answered by the model",
        lambda s: s.cache_miss.count,
    ),
    _Family(
        "nv_cache_miss_duration_per_model",
        "counter",
        "Microseconds it took to look for them and to put them there, all together",
        lambda s: s.cache_miss.ns // 1000,
    ),
)


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The options that decide which families the page has.

    Attributes:
        cpu: whether the machine's load and memory are shown (``--allow-cpu-metrics``).
        latencies: whether the duration counters are shown (``--metrics-config counter_latencies``).
        interval_ms: how long a figure of the machine is cached before it is read again.
        distributions: which summaries and histograms of latencies are shown.
        exemplars: whether the histograms may have exemplars, for scrapers that prefer OpenMetrics.
    """

    cpu: bool = True
    latencies: bool = True
    interval_ms: int = 2000
    distributions: LatencySettings = NO_DISTRIBUTIONS
    exemplars: bool = False


def render(
    series: Iterable[ModelSeries],
    settings: PageSettings,
    *,
    host: MachineFigures = HOST,
    custom: CustomMetrics | None = None,
    cache: CacheFigures | None = None,
    in_flight: InFlight | None = None,
    more: Iterable[str] = (),
    pinned: tuple[int, int] = (0, 0),
    exemplars: bool = False,
) -> Iterator[bytes]:
    """The page as UTF-8 text of ``CONTENT_TYPE``, or with ``exemplars`` of ``openmetrics.CONTENT_TYPE``, in parts.

    A part takes less than a millisecond, however many models there are. Its figures are those of the time when it is
    made.

    Args:
        series: the model versions that are loaded; a version has all its series from the start.
        settings: which families are shown.
        host: reads the figures of the machine and of this process.
        custom: the metrics of models; a family without metrics is left out.
        cache: the figures of the response cache.
        in_flight: the requests in flight and the refused ones.
        more: further families, each as its final text, or in parts of whole lines.
        pinned: the bytes of pinned memory that may be used, and that are used.
    """

    def parts() -> Iterator[str]:
        shown: list[_Shown] = []
        yield from _labelled(series, shown)
        cached = [item for item in shown if item.is_cached]
        yield from _model_blocks(shown, settings.latencies)
        distributions = _distributions(shown), _distributions(cached)
        yield from latency_blocks(*distributions, settings.distributions, exemplars)
        yield from batch_blocks([(item.labels, item.statistics) for item in shown])
        yield from more
        yield from _process_blocks(host)
        yield from _pinned_blocks(pinned)
        if cached:
            for family in _CACHED:
                yield from _family_block(family, cached)
        if cache is not None:
            yield from _cache_blocks(cache)
        if in_flight is not None:
            yield from _in_flight_blocks(in_flight)
        if settings.cpu:
            yield from _machine_blocks(host, settings.interval_ms)
        if custom is not None:
            for found in list(custom.families.values()):
                yield from _custom_block(found)

    for part in parts():
        text = openmetrics_part(part) if exemplars else part
        # A model may put characters into labels that UTF-8 cannot encode: they must not cost the whole page.
        yield text.encode("utf-8", "backslashreplace")
    if exemplars:
        yield OPENMETRICS_END


class _Shown:
    """A model version on one page: its labels, and their text, which many lines have."""

    __slots__ = ("is_cached", "labels", "statistics", "text")

    def __init__(self, labels: Labels, series: ModelSeries) -> None:
        self.labels = labels
        self.text = _written(labels)
        self.statistics = series.statistics
        self.is_cached = series.is_cached


def _labelled(series: Iterable[ModelSeries], shown: list[_Shown]) -> Iterator[str]:
    """Fill ``shown``, in steps without text: the labels of a thousand models take milliseconds."""
    for item in series:
        shown.append(_Shown(_model_labels(item), item))
        yield ""


def _distributions(shown: Sequence[_Shown]) -> list[tuple[Labels, Latencies]]:
    # Others are kept for a while, for somebody who watches them.
    return [(item.labels, found) for item in shown if isinstance(found := item.statistics.latencies, Latencies)]


def _model_blocks(shown: Sequence[_Shown], latencies: bool) -> Iterator[str]:
    if not shown:
        return
    for family in _COUNTS + (_LATENCIES if latencies else ()):
        yield from _family_block(family, shown)
    failures = (
        (_written({**item.labels, "reason": reason}), count)
        for item in shown
        for reason, count in item.statistics.failures.items()
    )
    yield from block("nv_inference_request_failure", "counter", "Inference requests that failed, by reason", failures)


def _family_block(family: _Family, shown: Sequence[_Shown]) -> Iterator[str]:
    return block(family.name, family.kind, family.help, ((item.text, family.value(item.statistics)) for item in shown))


def _cache_blocks(found: CacheFigures) -> Iterator[str]:
    rows: list[tuple[str, str, float]] = [
        ("nv_cache_num_hits", "Look-ups that found a response", found.hits),
        ("nv_cache_num_misses", "Look-ups that found none", found.misses),
        ("nv_cache_num_lookups", "Look-ups", found.hits + found.misses),
        ("nv_cache_lookup_duration", "Microseconds of all look-ups together", found.lookup_ns // 1000),
        ("nv_cache_insertion_duration", "Microseconds of all insertions together", found.insertion_ns // 1000),
    ]
    if found.capacity:
        rows += [
            ("nv_cache_util", "Share of the response cache that is in use, 0 to 1", found.used / found.capacity),
            ("nv_cache_num_entries", "Responses in the cache", found.entries),
            ("nv_cache_num_evictions", "Responses that made room for others", found.evictions),
        ]
    else:
        text = "Look-ups and insertions that the cache did not answer, or not in time"
        yield from block("naiad_cache_failures", "counter", text, [("", found.failures)])
    for name, help, value in rows:
        yield from block(name, "gauge", help, [("", value)])


def _machine_blocks(host: MachineFigures, interval_ms: int) -> Iterator[str]:
    sample = host.machine(interval_ms)
    yield from block(
        "nv_cpu_utilization", "gauge", "Busy share of the machine's processors, 0 to 1", [("", sample.load)]
    )
    yield from block("nv_cpu_memory_total_bytes", "gauge", "Memory of the machine", [("", sample.memory_total_bytes)])
    yield from block(
        "nv_cpu_memory_used_bytes", "gauge", "Memory of the machine in use", [("", sample.memory_used_bytes)]
    )


def _pinned_blocks(found: tuple[int, int]) -> Iterator[str]:
    """Memory for copies to GPUs, 0 without one: dashboards for the reference look for the families."""
    total, used = found
    yield from block(
        "nv_pinned_memory_pool_total_bytes", "gauge", "Pinned memory pool total memory size", [("", total)]
    )
    yield from block("nv_pinned_memory_pool_used_bytes", "gauge", "Pinned memory pool used memory size", [("", used)])


def _process_blocks(host: MachineFigures) -> Iterator[str]:
    memory_bytes, cpu_seconds = host.process()
    build = _written({"version": __version__})
    yield from block("naiad_build_info", "gauge", "Always 1; the label says which version runs", [(build, 1)])
    yield from block(
        "naiad_process_resident_memory_bytes", "gauge", "Memory that the server holds", [("", memory_bytes)]
    )
    yield from block("naiad_process_cpu_seconds", "counter", "Processor time that the server used", [("", cpu_seconds)])


def _in_flight_blocks(found: InFlight) -> Iterator[str]:
    yield from block("naiad_requests_in_flight", "gauge", "Accepted requests without an answer", [("", found.requests)])
    yield from block("naiad_request_bytes_in_flight", "gauge", "Bytes that those requests hold", [("", found.bytes)])
    refused = [(_written({"bound": bound}), count) for bound, count in found.refused.items()]
    yield from block("naiad_requests_refused", "counter", "Requests refused for want of room, by the bound", refused)
    cancelled = [(_written({"reason": reason}), count) for reason, count in found.cancelled.items()]
    yield from block(
        "naiad_calls_cancelled", "counter", "Calls that ended before their answer, by the reason", cancelled
    )


def _custom_block(family: Family) -> Iterator[str]:
    name = family.name
    # A list, since a model may remove a metric between two parts.
    if metrics := list(family.metrics.values()):
        rows = (metric.text(name) for metric in metrics)
        yield from rows_block(name, family.kind, help_text(family.description), rows)


def _model_labels(item: ModelSeries) -> Labels:
    # The reference puts "_" before tags, too; no tag can then replace a label of the server.
    tags = {"_" + _NOT_IN_A_NAME.sub("_", key): value for key, value in item.tags.items()}
    namespace = {"namespace": item.namespace} if item.namespace else {}
    gpu = {"gpu_uuid": item.gpu_uuid} if item.gpu_uuid else {}
    return {**tags, **gpu, "model": item.model, **namespace, "version": str(item.version)}


def _written(labels: Labels) -> str:
    return braced(label_text(labels))
