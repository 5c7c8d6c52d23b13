"""The page of ``--html``: charts, a table, and what describes the run. It needs nothing from elsewhere."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

from naiad.perf.report.figures import level_name, six_digits
from naiad.perf.report.findings import best_level, error_rate, largest_contributor, mean_batch
from naiad.perf.report.findings_text import conclusions, findings, size_text
from naiad.perf.report.level_charts import (
    latency_chart,
    latency_rate_chart,
    level_noun,
    parts_chart,
    percentile_chart,
    processor_chart,
    rate_chart,
)
from naiad.perf.report.page import bullets, charts, page, pairs, table, tiles
from naiad.perf.report.scales import duration_text, short_number
from naiad.perf.report.second_charts import second_charts
from naiad.perf.results import LevelResult, Report
from naiad.perf.settings import PerfSettings


def write_html(report: Report, settings: PerfSettings, file: Path) -> None:
    """Write the page.

    Raises:
        OSError: the file cannot be written.
    """
    file.write_text(report_html(report, settings), encoding="utf-8")


def report_html(report: Report, settings: PerfSettings) -> str:
    """The text of the page."""
    measured = [result for result in report.levels if result.merged.requests]
    body = [*_head(report), _tiles(report), bullets(conclusions(report))]
    if measured:
        body += ["<h2>Levels</h2>", charts(_level_figures(measured, settings)), "<p></p>", level_table(report.levels)]
    else:
        body.append(f'<p class="warn">No request succeeded.</p>{bullets(_failures(report))}')
    body += _seconds(report, measured)
    return page(f"{report.model}: naiad perf", [*body, *_run(report, settings)])


def _head(report: Report) -> list[str]:
    version = f' <small class="sub">version {escape(report.version)}</small>' if report.version else ""
    ways = {"http": "HTTP", "grpc": "gRPC"}
    where = f" to {report.endpoint}" if report.endpoint else ""
    when = f", {started_at(report)}" if report.levels else ""
    lines = [f"<h1>{escape(report.model or 'naiad perf')}{version}</h1>"]
    lines.append(f'<p class="sub">{escape(ways.get(report.protocol, report.protocol) + where + when)}</p>')
    if report.command:
        lines.append(f"<p><code>naiad perf {escape(shlex.join(report.command))}</code></p>")
    return lines


def started_at(report: Report) -> str:
    """When the first level began, in the time of the reader's machine that made the page."""
    first = report.levels[0]
    began_ns = (first.windows or [first.merged])[0].began_ns
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(began_ns / 1e9))


def _tiles(report: Report) -> str:
    best = best_level(report)
    if best is None:
        return ""
    window = best.merged
    found = [
        (short_number(best.inference_rate), f"inferences/s at {level_name(best.level).lower().replace(':', '')}"),
        (duration_text(window.latency.percentile(50) / 1e3), "p50 latency there"),
        (duration_text(window.latency.percentile(95) / 1e3), "p95 latency there"),
        (duration_text(window.latency.percentile(99) / 1e3), "p99 latency there"),
    ]
    if window.usage.cpu_cores is not None:
        found.append((f"{window.usage.cpu_cores:.2f}", "server CPU cores"))
    if window.usage.rss_bytes is not None:
        found.append((size_text(window.usage.rss_bytes), "server memory"))
    failed = sum(sum(result.merged.errors.values()) for result in report.levels)
    return tiles([*found, *([(f"{failed:,}", "failed requests")] if failed else [])])


def _level_figures(measured: Sequence[LevelResult], settings: PerfSettings) -> list[str]:
    """A line needs two levels."""
    levels = sorted(measured, key=lambda result: result.level.value)
    if len(levels) == 1:
        return [parts_chart(levels), percentile_chart(levels)]
    latency = latency_chart(levels, settings.measure.percentile)
    found = [rate_chart(levels), latency, latency_rate_chart(levels), parts_chart(levels)]
    return [chart for chart in (*found, percentile_chart(levels), processor_chart(levels)) if chart]


def level_table(levels: Sequence[LevelResult]) -> str:
    """One row for each level."""
    header = [level_noun(levels), "inferences/s", "average", "p50", "p90", "p95", "p99", "p99.9", "errors", "batch"]
    header += ["server CPU", "CPU/request", "server RSS", "client CPU", "largest part", "state"]
    return table(header, [_row(result) for result in levels], texts=(14, 15))


def _row(result: LevelResult) -> list[str]:
    window, usage = result.merged, result.merged.usage
    latency = window.latency
    times = [latency.mean, *(latency.percentile(percent) for percent in (50, 90, 95, 99, 99.9))]
    largest = largest_contributor(window)
    return [
        six_digits(result.level.value),
        f"{result.inference_rate:,.1f}",
        *(duration_text(ns / 1e3) if window.requests else "-" for ns in times),
        f"{error_rate(window):.2%}" if window.errors else "0",
        f"{mean_batch(window.server):.1f}" if window.server is not None else "-",
        "-" if usage.cpu_cores is None else f"{usage.cpu_cores:.2f}",
        "-" if usage.cpu_us_per_request is None else duration_text(usage.cpu_us_per_request),
        "-" if usage.rss_bytes is None else size_text(usage.rss_bytes),
        f"{window.client.cpu_cores:.2f}" if window.client.cpu_cores else "-",
        f"{largest.name} {largest.share:.0%}" if largest is not None else "-",
        _state(result),
    ]


def _state(result: LevelResult) -> str:
    states = ["unstable"] if result.unstable_reason else []
    states += ["over the limit"] if not result.is_within_limit else []
    states += ["client-bound"] if result.merged.client.is_bottleneck else []
    if not result.merged.requests:
        states.append("nothing measured")
    return ", ".join(states) or "stable"


def _failures(report: Report) -> list[str]:
    return [line for result in report.levels for line in findings(result)]


def _seconds(report: Report, measured: Sequence[LevelResult]) -> list[str]:
    """The findings about each level, and its charts over time; the level with the highest rate is open."""
    best = best_level(report)
    found = []
    for result in measured:
        figures = second_charts(result)
        lines = findings(result, verbose=1)
        rate = f"{result.inference_rate:,.1f} inferences/s, {_state(result)}"
        opened = " open" if result is best or len(measured) == 1 else ""
        title = f"<summary>{escape(level_name(result.level))} <span>{escape(rate)}</span></summary>"
        found.append(f"<details{opened}>{title}{bullets(lines)}{charts(figures)}</details>")
    return ["<h2>Level by level, second by second</h2>", *found] if found else []


def _run(report: Report, settings: PerfSettings) -> list[str]:
    measure = settings.measure
    values = list(report.machine.items())
    values += [("batch size", str(settings.input.batch_size)), ("seed", str(settings.load.seed))]
    if measure.total_requests:
        values.append(("measured", f"{measure.total_requests} requests"))
    elif measure.mode == "count_windows":
        values.append(("window", f"{measure.request_count} requests"))
    else:
        values.append(("window", f"{measure.interval_ms} ms"))
    if report.warmup_ns is not None:
        values.append(("first response", duration_text(report.warmup_ns / 1e3)))
    return ["<h2>Client and settings</h2>", pairs(values)]
