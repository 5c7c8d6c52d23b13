"""The charts over the levels of a run: rate, latency, and where the latency goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

from naiad.perf.report.charts import Axes, Bar, Point, Series, bar_chart, legend, line_chart
from naiad.perf.report.figures import LatencyParts, is_rate, latency_parts, level_name, six_digits
from naiad.perf.report.page import figure
from naiad.perf.report.scales import Formatter, duration_text, duration_tick, is_wide, short_number
from naiad.perf.results import LevelResult

PARTS: Final = {
    "schedule": ("schedule", 7),
    "client": ("client send/recv", 2),
    "network": ("network", 6),
    "event_loop": ("event loop", 6),
    "response_wait": ("wait for the response", 6),
    "server_overhead": ("server overhead", 8),
    "queue": ("queue", 4),
    "cache": ("cache", 3),
    "compute_input": ("compute input", 5),
    "compute_infer": ("compute infer", 0),
    "compute_output": ("compute output", 1),
}
"""Name and colour of each part of the latency, in the order in which they are stacked."""
_CURVE: Final = (0, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
_MOST_CURVES: Final = 8


def rate_chart(levels: Sequence[LevelResult]) -> str:
    """Inferences a second by concurrency, or by the rate that was asked for."""
    points = [
        Point(
            result.level.value,
            result.inference_rate,
            f"{level_name(result.level)}: {six_digits(result.inference_rate)} inferences/s{doubt(result)}",
            is_hollow=is_doubtful(result),
        )
        for result in levels
    ]
    chart = line_chart([Series("", points)], level_axes(levels, "inferences per second"))
    return figure(f"Rate by {level_noun(levels)}", doubt_note(levels), chart)


def latency_chart(levels: Sequence[LevelResult], percentile: int | None) -> str:
    """Percentiles of the latency by concurrency, p95 among them."""
    percents = sorted({50, 95, 99} | ({percentile} if percentile else set()))
    series = []
    for place, percent in enumerate(percents):
        points = [
            Point(
                result.level.value,
                (found := result.merged.latency.percentile(percent) / 1e3),
                f"{level_name(result.level)}: p{percent} {duration_text(found)}{doubt(result)}",
                is_hollow=is_doubtful(result),
            )
            for result in levels
        ]
        series.append(Series(f"p{percent}", points, place))
    chart = line_chart(series, replace(level_axes(levels, "latency", duration_tick), may_show_ratios=True))
    return figure(f"Latency by {level_noun(levels)}", "", legend([(one.name, one.colour) for one in series]), chart)


def latency_rate_chart(levels: Sequence[LevelResult]) -> str:
    """Latency against the rate at which it was measured; the levels stand beside the points."""
    series = []
    for place, percent in enumerate((50, 95)):
        points = [
            Point(
                result.inference_rate,
                (found := result.merged.latency.percentile(percent) / 1e3),
                f"{level_name(result.level)}: {six_digits(result.inference_rate)} inferences/s,"
                f" p{percent} {duration_text(found)}{doubt(result)}",
                label=six_digits(result.level.value) if percent == 95 else "",
                is_hollow=is_doubtful(result),
            )
            for result in levels
        ]
        series.append(Series(f"p{percent}", points, place))
    axes = Axes("inferences per second", "latency", y_format=duration_tick, may_show_ratios=True)
    names = legend([(one.name, one.colour) for one in series])
    return figure("Latency against rate", f"numbers are the {level_noun(levels)}", names, line_chart(series, axes))


def parts_chart(levels: Sequence[LevelResult]) -> str:
    """Where the average latency goes, as stacked bars, with the rate as a line."""
    split = [_stacked(latency_parts(result.merged)) for result in levels]
    highest = max(sum(parts.values()) for parts in split)
    used = [name for name in PARTS if any(parts[name] > highest / 2000 for parts in split)]
    bars = []
    for result, parts in zip(levels, split, strict=True):
        shares, total = {name: parts[name] for name in used}, sum(parts.values()) or 1.0
        titles = {
            name: f"{level_name(result.level)}: {PARTS[name][0]} {duration_text(us)}, {us / total:.0%}"
            for name, us in shares.items()
        }
        bars.append(
            Bar(
                six_digits(result.level.value),
                shares,
                result.inference_rate,
                titles,
                f"{level_name(result.level)}: {six_digits(result.inference_rate)} inferences/s",
            )
        )
    colours = {name: PARTS[name][1] for name in used}
    chart = bar_chart(bars, colours, "average latency", "inferences per second", duration_tick)
    names = legend([PARTS[name] for name in used], "rate (right)")
    note = "" if any(result.merged.server for result in levels) else "the server gave no figures of its own"
    return figure(f"Where the time goes, by {level_noun(levels)}", note, names, chart)


def processor_chart(levels: Sequence[LevelResult]) -> str:
    """How many cores the server and the client used, by concurrency."""
    used = {
        "server": [(result, result.merged.usage.cpu_cores) for result in levels],
        "client": [(result, result.merged.client.cpu_cores or None) for result in levels],
    }
    series = []
    for place, (name, found) in enumerate(used.items()):
        points = [
            Point(result.level.value, cores, f"{level_name(result.level)}: {name} {cores:.2f} cores")
            for result, cores in found
            if cores is not None
        ]
        series += [Series(name, points, place)] if points else []
    if not series:
        return ""
    names = legend([(one.name, one.colour) for one in series])
    return figure(f"CPU by {level_noun(levels)}", "", names, line_chart(series, level_axes(levels, "cores")))


def percentile_chart(levels: Sequence[LevelResult]) -> str:
    """The whole distribution of the latency: each percentile by how rare it is."""
    chosen = thinned(levels, _MOST_CURVES)
    series = []
    for place, result in enumerate(chosen):
        # A percentile needs that many requests; beyond them it would repeat the greatest one.
        percents = [percent for percent in _CURVE if result.merged.requests * (100 - percent) >= 100]
        points = [
            Point(
                _rareness(percent),
                (found := result.merged.latency.percentile(percent) / 1e3),
                f"{level_name(result.level)}: p{percent:g} {duration_text(found)}",
            )
            for percent in percents
        ]
        series.append(Series(level_name(result.level), points, place))
    shown = [_rareness(percent) for percent in (0, 50, 90, 99, 99.9, 99.99)]
    axes = Axes("percentile", "latency", _percentile_text, duration_tick, shown, may_show_ratios=True)
    names = legend([(one.name, one.colour) for one in series])
    return figure("Latency by percentile", "", names, line_chart(series, axes))


def _stacked(parts: LatencyParts) -> dict[str, float]:
    """The parts as they are stacked, in microseconds."""
    found = {field.name: float(getattr(parts, field.name)) for field in fields(parts)}
    return {"client": found.pop("client_send") + found.pop("client_receive"), **found}


def _percentile_text(rareness: float) -> str:
    return f"{100 - 100 * 10**-rareness:.6g}%"


def _rareness(percent: float) -> float:
    return -math.log10(1 - percent / 100) if percent < 100 else 5.0


def thinned(levels: Sequence[LevelResult], most: int) -> list[LevelResult]:
    """At most so many levels, evenly chosen, the first and the last among them."""
    if len(levels) <= most:
        return list(levels)
    return [levels[round(place * (len(levels) - 1) / (most - 1))] for place in range(most)]


def level_axes(levels: Sequence[LevelResult], y_label: str, y_format: Formatter = short_number) -> Axes:
    """Axes with a tick for each level."""
    values = sorted({result.level.value for result in levels})
    return Axes(level_noun(levels), y_label, six_digits, y_format, values, is_wide(values))


def level_noun(levels: Sequence[LevelResult]) -> str:
    """What the levels are values of."""
    return "request rate" if levels and is_rate(levels[0].level) else "concurrency"


def is_doubtful(result: LevelResult) -> bool:
    """Whether a level's figures are drawn hollow."""
    return bool(result.unstable_reason) or not result.is_within_limit or result.merged.client.is_bottleneck


def doubt(result: LevelResult) -> str:
    """Why a level's figures are to be doubted, for the end of a title."""
    reasons = [f"unstable: {result.unstable_reason}"] if result.unstable_reason else []
    reasons += ["over the latency limit"] if not result.is_within_limit else []
    reasons += ["limited by the client"] if result.merged.client.is_bottleneck else []
    return f" ({'; '.join(reasons)})" if reasons else ""


def doubt_note(levels: Sequence[LevelResult]) -> str:
    """What hollow points mean, where there are some."""
    found = [result for result in levels if is_doubtful(result)]
    reasons = ["unstable"] if any(result.unstable_reason for result in found) else []
    reasons += ["over the limit"] if any(not result.is_within_limit for result in found) else []
    reasons += ["limited by the client"] if any(result.merged.client.is_bottleneck for result in found) else []
    return f"hollow: {', '.join(reasons)}" if reasons else ""
