"""The charts of the pages, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from naiad.analyze.measurement import ALIASES, PARTS, Measurement
from naiad.analyze.report.csv_files import HEADERS
from naiad.analyze.result import Analysis, ModelProfile
from naiad.analyze.trial import Variant
from naiad.perf.report.charts import Axes, Bar, Point, Series, bar_chart, legend, line_chart
from naiad.perf.report.page import figure
from naiad.perf.report.scales import duration_tick, short_number

_NAMES: Final = {
    "perf_client_send_recv": ("client send/recv", 2),
    "perf_server_queue": ("queue", 4),
    "perf_server_compute_input": ("compute input", 5),
    "perf_server_compute_infer": ("compute infer", 0),
    "perf_server_compute_output": ("compute output", 1),
    "other": ("network and server overhead", 6),
}
"""Name and colour of each part of the latency."""
MEMORY: Final = ("gpu_used_memory", "cpu_used_ram")


def shown_setups(profile: ModelProfile, count: int) -> list[tuple[Variant, ...]]:
    """The configurations that charts show: the best ones, and the default."""
    found = [row.trial.setup for row in profile.ranked()[:count]]
    if profile.default is not None and not profile.default.error:
        default = profile.default.trial.setup
        found += [default] if default not in found else []
    return found


def level_of(row: Measurement) -> str:
    """The load of a row, short: the concurrency, the rate, or the batch size."""
    load = row.trial.loads[0]
    if load.rate:
        return f"{load.rate:g}/s"
    return str(load.concurrency) if load.concurrency else f"b{load.batch_size}"


def title_of(analysis: Analysis, row: Measurement) -> str:
    """What a pointer on a row's point is shown."""
    load = "; ".join(dict.fromkeys(load.text for load in row.trial.loads))
    return f"{analysis.name(row.trial)}, {load}: {row.throughput:,.1f} inferences/s, p99 {row.p99_ms:.3g} ms"


def curve_chart(analysis: Analysis, profile: ModelProfile, setups: Sequence[tuple[Variant, ...]]) -> str:
    """Throughput over the p99 latency, a line for each configuration."""
    budget = [goal.latency_budget_ms for goal in profile.judge.goals if goal.latency_budget_ms is not None]
    series = []
    for place, setup in enumerate(setups):
        rows = profile.loads_of(setup)
        points = [Point(row.p99_ms * 1e3, row.throughput, title_of(analysis, row), level_of(row)) for row in rows]
        if points:
            series.append(Series(analysis.name(rows[0].trial), points, place))
    axes = Axes("p99 latency", "inferences per second", duration_tick, short_number, rules=[b * 1e3 for b in budget])
    note = "numbers are the concurrency" + ("; dotted: the latency budget" if budget else "")
    return figure(
        "Throughput against latency", note, legend([(s.name, s.colour) for s in series]), line_chart(series, axes)
    )


def memory_chart(analysis: Analysis, profile: ModelProfile, setups: Sequence[tuple[Variant, ...]]) -> str:
    """Memory against the p99 latency: of the GPUs where there are any, else of the server."""
    for metric in MEMORY:
        series = []
        for place, setup in enumerate(setups):
            rows = [row for row in profile.loads_of(setup) if row.figure(metric) is not None]
            points = [
                Point(row.p99_ms * 1e3, row.figure(metric) or 0.0, title_of(analysis, row), level_of(row))
                for row in rows
            ]
            if points:
                series.append(Series(analysis.name(rows[0].trial), points, place))
        if series:
            what = "GPU memory" if metric.startswith("gpu") else "Server memory"
            axes = Axes("p99 latency", "MB", duration_tick, short_number)
            return figure(
                f"{what} against latency", "", legend([(s.name, s.colour) for s in series]), line_chart(series, axes)
            )
    return ""


def parts_of(row: Measurement, place: int = 0) -> dict[str, float]:
    """Where the average latency went, in microseconds."""
    figures = row.models[place].figures
    found = {name: figures.get(name, 0.0) * 1e3 for name in PARTS}
    found["other"] = max(figures.get("perf_latency_avg", 0.0) * 1e3 - sum(found.values()), 0.0)
    return found


def breakdown_chart(analysis: Analysis, rows: Sequence[Measurement], place: int = 0) -> str:
    """One bar for each load, stacked by where the time goes, and the throughput as a line."""
    bars = []
    for row in rows:
        parts = parts_of(row, place)
        rate = row.models[place].figures.get("perf_throughput", 0.0)
        titles = {name: f"{level_of(row)}: {_NAMES[name][0]} {us / 1e3:.3g} ms" for name, us in parts.items()}
        bars.append(Bar(level_of(row), parts, rate, titles, title_of(analysis, row)))
    if not bars:
        return ""
    used = [name for name in (*PARTS, "other") if any(bar.parts[name] > 0 for bar in bars)]
    shown = [Bar(b.label, {n: b.parts[n] for n in used}, b.line, b.titles, b.line_title) for b in bars]
    colours = {name: _NAMES[name][1] for name in used}
    chart = bar_chart(shown, colours, "average latency", "inferences per second", duration_tick)
    name = analysis.names(rows[0].trial)[place]
    return figure(
        f"Where the time goes: {name}", "by load", legend([_NAMES[n] for n in used], "throughput (right)"), chart
    )


def plot_chart(
    analysis: Analysis, profile: ModelProfile, setups: Sequence[tuple[Variant, ...]], plot: Mapping[str, Any]
) -> str:
    """A chart that a file asks for with ``x_axis`` and ``y_axis``; empty where there are no figures for it."""
    x, y = str(plot.get("x_axis", "perf_latency_p99")), str(plot.get("y_axis", "perf_throughput"))
    series = []
    for place, setup in enumerate(setups):
        points = []
        rows = profile.loads_of(setup)
        for row in rows:
            at, high = _value(row, x), _value(row, y)
            if at is not None and high is not None:
                points.append(Point(at, high, title_of(analysis, row), level_of(row)))
        points.sort(key=lambda point: point.x)
        if plot.get("monotonic"):
            points = _rising(points)
        if points:
            series.append(Series(analysis.name(rows[0].trial), points, place))
    if not series:
        return ""
    axes = Axes(HEADERS.get(x, x), HEADERS.get(y, y))
    title = str(plot.get("title", f"{y} against {x}"))
    return figure(title, "", legend([(s.name, s.colour) for s in series]), line_chart(series, axes))


def _value(row: Measurement, name: str) -> float | None:
    load = row.trial.loads[0]
    loads = {"batch_size": load.batch_size, "concurrency": load.concurrency, "request_rate": load.rate}
    if name in loads:
        return float(loads[name])
    return row.figure(ALIASES.get(name, name))


def _rising(points: Sequence[Point]) -> list[Point]:
    kept: list[Point] = []
    for point in points:
        if not kept or point.y > kept[-1].y:
            kept.append(point)
    return kept
