"""The page of metrics: Prometheus text written from the engine's own counters when it is asked for.

Source: ``metrics.cc`` and ``metric_model_reporter.cc`` of the reference for the ``nv_`` names, the Prometheus text
exposition format 0.0.4 for the form. Counters keep the reference's names, which have no ``_total`` at the end, so the
text is written here: the official client library would add it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from naiad.telemetry.custom_metrics import CustomMetrics, Family
from naiad.telemetry.exposition import braced, help_text, label_text
from naiad.telemetry.host import HOST, MachineFigures
from naiad.telemetry.statistics import ModelStatistics
from naiad.version import __version__

CONTENT_TYPE = "text/plain; charset=utf-8"

Labels = Mapping[str, str]
Sample = tuple[str, float]

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class ModelSeries:
    """The counters of one model version; ``tags`` are the ``metric_tags`` of its configuration.

    ``namespace`` is that of the model with ``--model-namespacing``.
    """

    model: str
    version: int
    tags: Mapping[str, str]
    statistics: ModelStatistics
    namespace: str = ""


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


def render(
    series: Iterable[ModelSeries],
    *,
    cpu: bool,
    latencies: bool,
    interval_ms: int = 2000,
    host: MachineFigures = HOST,
    custom: CustomMetrics | None = None,
    more: Iterable[str] = (),
) -> bytes:
    """The whole page as UTF-8 text of ``CONTENT_TYPE``.

    Args:
        series: the model versions that are loaded; a version has all its series from the start.
        cpu: whether the machine's load and memory are shown (``--allow-cpu-metrics``).
        latencies: whether the duration counters are shown (``--metrics-config counter_latencies``).
        interval_ms: how long a figure of the machine is kept before it is read again.
        host: where the figures of the machine and of this process come from.
        custom: what models made; a family without metrics is left out.
        more: further families, each as it is written.
    """
    shown = [(_model_labels(item), item.statistics) for item in series]
    blocks = [*_model_blocks(shown, latencies), *more, *_process_blocks(host)]
    if cpu:
        blocks += _machine_blocks(host, interval_ms)
    if custom is not None:
        blocks += [_custom_block(family) for family in custom.families.values() if family.metrics]
    return "".join(blocks).encode("utf-8", "backslashreplace")


def _model_blocks(shown: Sequence[tuple[Labels, ModelStatistics]], latencies: bool) -> Iterator[str]:
    if not shown:
        return
    for family in _COUNTS + (_LATENCIES if latencies else ()):
        samples = [(_written(labels), family.value(statistics)) for labels, statistics in shown]
        yield _block(family.name, family.kind, family.help, samples)
    failures = [
        (_written({**labels, "reason": reason}), count)
        for labels, statistics in shown
        for reason, count in statistics.failures.items()
    ]
    yield _block("nv_inference_request_failure", "counter", "Inference requests that failed, by reason", failures)


def _machine_blocks(host: MachineFigures, interval_ms: int) -> Iterator[str]:
    sample = host.machine(interval_ms)
    yield _block("nv_cpu_utilization", "gauge", "Busy share of the machine's processors, 0 to 1", [("", sample.load)])
    yield _block("nv_cpu_memory_total_bytes", "gauge", "Memory of the machine", [("", sample.memory_total_bytes)])
    yield _block("nv_cpu_memory_used_bytes", "gauge", "Memory of the machine in use", [("", sample.memory_used_bytes)])


def _process_blocks(host: MachineFigures) -> Iterator[str]:
    memory_bytes, cpu_seconds = host.process()
    build = _written({"version": __version__})
    yield _block("naiad_build_info", "gauge", "Always 1; the label says which version runs", [(build, 1)])
    yield _block("naiad_process_resident_memory_bytes", "gauge", "Memory that the server holds", [("", memory_bytes)])
    yield _block("naiad_process_cpu_seconds", "counter", "Processor time that the server used", [("", cpu_seconds)])


def _custom_block(family: Family) -> str:
    name = family.name
    lines = "".join([metric.text(name) for metric in family.metrics.values()])
    return f"# HELP {name} {help_text(family.description)}\n# TYPE {name} {family.kind}\n{lines}"


def _block(name: str, kind: str, help: str, samples: Iterable[Sample]) -> str:
    lines = "".join(f"{name}{labels} {value}\n" for labels, value in samples)
    return f"# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}"


def _model_labels(item: ModelSeries) -> Labels:
    tags = {"_" + _NOT_IN_A_NAME.sub("_", key): value for key, value in item.tags.items()}
    namespace = {"namespace": item.namespace} if item.namespace else {}
    return {**tags, "model": item.model, **namespace, "version": str(item.version)}


def _written(labels: Labels) -> str:
    return braced(label_text(labels))
