"""The summaries and histograms of latencies on the metrics page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, starmap
from time import monotonic_ns
from typing import Final

from naiad.options.metric_families import HISTOGRAMS, STAGES
from naiad.telemetry.metrics.exposition import braced, label_text, number_text, rows_block
from naiad.telemetry.metrics.latencies import (
    CACHE_HIT,
    CACHE_MISS,
    Distribution,
    Exemplar,
    Latencies,
    LatencySettings,
)

_WHAT: Final = {
    "request": "from receiving a request to answering it",
    "queue": "that a request waited in the queue",
    "compute_input": "spent on putting the inputs of a request together",
    "compute_infer": "that the model ran for a request",
    "compute_output": "spent on taking the outputs of a request apart",
}
_CACHES: Final = (
    ("nv_cache_hit_summary_per_model", CACHE_HIT, "Microseconds it took to find a response in the response cache"),
    ("nv_cache_miss_summary_per_model", CACHE_MISS, "Microseconds of a look-up without a response, and its insertion"),
)

Shown = Sequence[tuple[Mapping[str, str], Latencies]]


def latency_blocks(shown: Shown, cached: Shown, settings: LatencySettings, exemplars: bool = False) -> Iterator[str]:
    """Each family as text, in parts.

    Args:
        shown: the models with distributions, by their labels.
        cached: those of them whose responses may come from the cache.
        exemplars: whether histograms have exemplars, which only OpenMetrics allows.
    """
    for _, latencies in shown:
        latencies.settle()
        # A step of its own: it takes a while with many models.
        yield ""
    if settings.histograms:
        yield from _histograms(shown, exemplars)
    if not settings.summaries:
        return
    now_ns = monotonic_ns()
    for stage in STAGES:
        name = f"nv_inference_{stage}_summary_us"
        rows = [(labels, latencies.stages[stage]) for labels, latencies in shown]
        yield from _summary(name, f"Microseconds {_WHAT[stage]}", rows, settings.quantiles, now_ns)
    if cached:
        for name, kind, help in _CACHES:
            rows = [(labels, latencies.cache(kind)) for labels, latencies in cached]
            yield from _summary(name, help, rows, settings.quantiles, now_ns)


def _histograms(shown: Shown, exemplars: bool) -> Iterator[str]:
    first = "Milliseconds from receiving a request to its first response"
    yield from _histogram(HISTOGRAMS[0], first, [(labels, found.first_response) for labels, found in shown], exemplars)
    for stage, name in zip(STAGES, HISTOGRAMS[1:], strict=True):
        rows = [(labels, found.stages[stage]) for labels, found in shown]
        yield from _histogram(name, f"Microseconds {_WHAT[stage]}", rows, exemplars)


def _histogram(
    name: str, help: str, rows: Sequence[tuple[Mapping[str, str], Distribution]], exemplars: bool
) -> Iterator[str]:
    def row(labels: Mapping[str, str], found: Distribution) -> str:
        lines: list[str] = []
        text = label_text(labels)
        below = list(accumulate(found.counts.tolist()))
        bounds = [] if found.bounds is None else found.bounds.tolist()
        for place, (bound, count) in enumerate(zip((*bounds, math.inf), below, strict=True)):
            edge = braced(text, f'le="{number_text(bound)}"')
            lines.append(f"{name}_bucket{edge} {count}{_exemplar(found.exemplars.get(place), exemplars)}\n")
        return "".join(lines) + _ends(name, text, found)

    return rows_block(name, "histogram", help, starmap(row, rows))


def _exemplar(found: Exemplar | None, wanted: bool) -> str:
    if found is None or not wanted:
        return ""
    return f' # {{trace_id="{found.trace_id}"}} {number_text(found.value)} {found.at_s:.3f}'


def _summary(
    name: str,
    help: str,
    rows: Sequence[tuple[Mapping[str, str], Distribution]],
    quantiles: Sequence[float],
    now_ns: int,
) -> Iterator[str]:
    def row(labels: Mapping[str, str], found: Distribution) -> str:
        lines: list[str] = []
        text = label_text(labels)
        values = [] if found.window is None else found.window.quantiles(quantiles, now_ns)
        for share, value in zip(quantiles, values, strict=True):
            shown = value if math.isnan(value) else round(value)
            quantile = f'quantile="{number_text(share)}"'
            lines.append(f"{name}{braced(text, quantile)} {number_text(shown)}\n")
        return "".join(lines) + _ends(name, text, found)

    return rows_block(name, "summary", help, starmap(row, rows))


def _ends(name: str, text: str, found: Distribution) -> str:
    labels = braced(text)
    return f"{name}_sum{labels} {number_text(round(found.sum, 3))}\n{name}_count{labels} {found.count}\n"
