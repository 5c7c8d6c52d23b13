"""The charts over the time of one level: rate, percentiles, processor time and memory of each second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from naiad.perf.report.charts import Axes, Point, Series, legend, line_chart
from naiad.perf.report.page import figure
from naiad.perf.report.scales import duration_text, duration_tick, short_number
from naiad.perf.report.seconds import TimedSecond, level_seconds
from naiad.perf.results import LevelResult


def second_charts(result: LevelResult) -> list[str]:
    """Figures of one level; fewer when the server's usage is not known, none without seconds."""
    seconds = level_seconds(result)
    if not seconds:
        return []
    rate = _series("rate", seconds, lambda it: it.request_rate * result.batch_size, lambda v: f"{v:.6g} inferences/s")
    charts = [figure("Rate", _note(result), line_chart([rate], _axes(result, seconds, "inferences per second")))]
    charts.append(_latency(result, seconds))
    errors = _series("errors", seconds, lambda it: float(it.second.errors), lambda v: f"{v:.0f} errors")
    if any(point.y for point in errors.points):
        charts.append(figure("Errors", "", line_chart([errors], _axes(result, seconds, "failed requests"))))
    cores = _series("CPU", seconds, lambda it: it.second.cpu_cores, lambda v: f"{v:.2f} cores")
    if cores.points:
        charts.append(figure("CPU of the server", "", line_chart([cores], _axes(result, seconds, "cores"))))
    memory = _series("RSS", seconds, _mebibytes, lambda v: f"{v:.1f} MiB")
    if memory.points:
        charts.append(figure("Memory of the server", "", line_chart([memory], _axes(result, seconds, "RSS (MiB)"))))
    gpu = _series("GPU", seconds, lambda it: _percent(it.second.gpu_utilization), lambda v: f"{v:.0f}%")
    if gpu.points:
        charts.append(figure("Utilization of the GPUs", "", line_chart([gpu], _axes(result, seconds, "percent"))))
    return charts


def _latency(result: LevelResult, seconds: Sequence[TimedSecond]) -> str:
    named: dict[str, Callable[[TimedSecond], float]] = {
        "p50": lambda it: it.second.p50_us,
        "p95": lambda it: it.second.p95_us,
        "p99": lambda it: it.second.p99_us,
    }
    # A second without requests has no latency; 0 would be praise.
    busy = [it for it in seconds if it.second.requests]
    series = [_series(name, busy, value, duration_text, place) for place, (name, value) in enumerate(named.items())]
    names = legend([(one.name, one.colour) for one in series])
    axes = replace(_axes(result, seconds, "latency"), y_format=duration_tick, may_show_ratios=True)
    return figure("Latency", "", names, line_chart(series, axes))


def _series(
    name: str,
    seconds: Sequence[TimedSecond],
    value: Callable[[TimedSecond], float | None],
    text: Callable[[float], str],
    colour: int = 0,
) -> Series:
    found = [(it.at_s + it.length_s / 2, it.at_s, value(it)) for it in seconds]
    points = [Point(at, y, f"{start:.1f} s: {name} {text(y)}") for at, start, y in found if y is not None]
    return Series(name, points, colour, has_dots=len(points) <= 40)


def _axes(result: LevelResult, seconds: Sequence[TimedSecond], y_label: str) -> Axes:
    windows = result.windows or [result.merged]
    began = windows[0].began_ns
    merged = ((result.merged.began_ns - began) / 1e9, (result.merged.ended_ns - began) / 1e9)
    what = "the windows that are reported"
    return Axes(
        "seconds",
        y_label,
        short_number,
        short_number,
        bands=[(*merged, what)] if len(windows) > 1 else (),
        rules=[(window.began_ns - began) / 1e9 for window in windows[1:]],
    )


def _note(result: LevelResult) -> str:
    return "shaded: the windows that are reported" if len(result.windows) > 1 else ""


def _mebibytes(it: TimedSecond) -> float | None:
    return None if it.second.rss_bytes is None else it.second.rss_bytes / 2**20


def _percent(part: float | None) -> float | None:
    return None if part is None else part * 100
