"""``naiad perf --compare``: any number of runs as a table for the terminal and as a page with overlaid charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from naiad.perf.report.charts import Axes, Point, Series, legend, line_chart
from naiad.perf.report.comparison import (
    CAVEAT,
    METHOD,
    Comparison,
    LevelComparison,
    differences,
    read_comparison,
    verdict,
)
from naiad.perf.report.comparison_files import comparison_csv, comparison_json
from naiad.perf.report.figures import level_name
from naiad.perf.report.findings_text import size_text
from naiad.perf.report.html_file import started_at
from naiad.perf.report.level_charts import doubt, is_doubtful, level_axes, level_noun
from naiad.perf.report.page import bullets, charts, figure, page, pairs, table
from naiad.perf.report.scales import duration_text, duration_tick
from naiad.perf.report.seconds import level_seconds
from naiad.perf.results import LevelResult, Report
from naiad.perf.settings import PerfSettings

_HEADER = ("run", "inferences/s", "change", "p50", "p95", "change", "p99", "server CPU", "server RSS", "state")


def compare_runs(settings: PerfSettings) -> str:
    """Compare the files of ``--compare``, write the files that are asked for, and return the text for the terminal.

    Raises:
        ReportFileError: a file is no report.
        OSError: a file cannot be written.
    """
    comparison, output = read_comparison(settings.compare), settings.output
    if output.html_file is not None:
        write_comparison_html(comparison, output.html_file)
    if output.csv_file is not None:
        output.csv_file.write_text(comparison_csv(comparison), encoding="utf-8")
    if output.json_file is not None:
        output.json_file.write_bytes(comparison_json(comparison))
    return comparison_text(comparison)


def comparison_text(comparison: Comparison) -> str:
    """The table for the terminal, with what the tests say below each level."""
    lines = [f"Comparison with {comparison.names[0]}", ""]
    width = max(len(name) for name in comparison.names)
    lines += [
        f"  {name.ljust(width)}  {_run_text(report)}"
        for name, report in zip(comparison.names, comparison.reports, strict=True)
    ]
    lines += [f"  {line}" for line in differences(comparison)] + [""]
    for one in comparison.levels:
        lines += [_level_title(one), *_columns([_HEADER, *_rows(comparison, one)])]
        lines += [f"    {line}" for line in _verdicts(comparison, one)] + [""]
    if not comparison.levels:
        lines += ["The runs have no level with successful requests.", ""]
    return "\n".join([*lines, METHOD, CAVEAT]) + "\n"


def write_comparison_html(comparison: Comparison, file: Path) -> None:
    """Write the page.

    Raises:
        OSError: the file cannot be written.
    """
    file.write_text(comparison_html(comparison), encoding="utf-8")


def comparison_html(comparison: Comparison) -> str:
    """The text of the page."""
    names = " and ".join(escape(name) for name in comparison.names[1:]) or "nothing else"
    body = [f'<h1>{escape(comparison.names[0])} <small class="sub">compared with {names}</small></h1>']
    runs = [(name, _run_text(report)) for name, report in zip(comparison.names, comparison.reports, strict=True)]
    body += ["<p></p>", pairs(runs)]
    body += [f'<p class="warn">{escape(line)}</p>' for line in differences(comparison)]
    if comparison.levels:
        body += ["<h2>Levels</h2>", legend([(name, run) for run, name in enumerate(comparison.names)])]
        body += [charts(_overlays(comparison))]
    else:
        body.append('<p class="warn">The runs have no level with successful requests.</p>')
    for one in comparison.levels:
        body += [f"<h2>{escape(_level_title(one))}</h2>", bullets(_verdicts(comparison, one))]
        body += [
            table(_HEADER, _rows(comparison, one), texts=(0, 9)),
            "<p></p>",
            charts(_second_overlays(comparison, one)),
        ]
    body += ["<h2>How it is tested</h2>", f"<p>{escape(METHOD)}</p><p>{escape(CAVEAT)}</p>"]
    return page("naiad perf: comparison", body)


def _run_text(report: Report) -> str:
    when = f", {started_at(report)}" if report.levels else ""
    versions = f"naiad {report.machine['naiad']}, " if "naiad" in report.machine else ""
    units = {"processor": "{}", "cores": "{} cores", "memory": "{}"}
    machine = [text.format(report.machine[name]) for name, text in units.items() if name in report.machine]
    return f"{report.model}, {report.protocol}{when}; {versions}{', '.join(machine)}".rstrip("; ,")


def _level_title(one: LevelComparison) -> str:
    return level_name(one.level) + (f", batches of {one.batch_size}" if one.batch_size > 1 else "")


def _rows(comparison: Comparison, one: LevelComparison) -> list[list[str]]:
    rows = []
    for run, result in sorted(one.results.items()):
        window, usage = result.merged, result.merged.usage
        p50, p95, p99 = (duration_text(window.latency.percentile(percent) / 1e3) for percent in (50, 95, 99))
        rate, latency = one.rates.get(run), one.latencies.get(run)
        rows.append(
            [
                comparison.names[run],
                f"{result.inference_rate:,.1f}",
                rate.percent if rate else "",
                p50,
                p95,
                latency.percent if latency else "",
                p99,
                "-" if usage.cpu_cores is None else f"{usage.cpu_cores:.2f}",
                "-" if usage.rss_bytes is None else size_text(usage.rss_bytes),
                doubt(result).strip(" ()") or "stable",
            ]
        )
    return rows


def _verdicts(comparison: Comparison, one: LevelComparison) -> list[str]:
    return [
        f"{comparison.names[run]}: {verdict(one.rates.get(run), 'rate')}; {verdict(one.latencies.get(run), 'p95')}"
        if 0 in one.results
        else f"{comparison.names[run]}: the first run does not have this level"
        for run in sorted(one.results)
        if run
    ]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [value.rjust(width) for value, width in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  ".join((" ", row[0].ljust(widths[0]), *cells, row[-1])).rstrip())
    return lines


def _overlays(comparison: Comparison) -> list[str]:
    """Charts over the levels, one line for each run."""
    by_run = [
        sorted((one.results[run] for one in comparison.levels if run in one.results), key=lambda it: it.level.value)
        for run in range(len(comparison.names))
    ]
    everything = [result for results in by_run for result in results]
    noun = level_noun(everything)
    axes = replace(level_axes(everything, "latency", duration_tick), may_show_ratios=True)
    rate_axes = level_axes(everything, "inferences per second")
    against = Axes("inferences per second", "p95 latency", y_format=duration_tick, may_show_ratios=True)

    def overlay(x: Callable[[LevelResult], float], y: Callable[[LevelResult], float | None], shown: Axes) -> str:
        return line_chart(
            [_series(comparison.names[run], run, by_run[run], x, y, shown) for run in range(len(by_run))], shown
        )

    found = [
        figure(f"Rate by {noun}", "", overlay(_value, lambda it: it.inference_rate, rate_axes)),
        figure(f"p95 latency by {noun}", "", overlay(_value, _percentile(95), axes)),
        figure("p95 latency against rate", "", overlay(lambda it: it.inference_rate, _percentile(95), against)),
        figure(f"p99 latency by {noun}", "", overlay(_value, _percentile(99), axes)),
    ]
    if any(result.merged.usage.cpu_cores is not None for result in everything):
        cores = level_axes(everything, "cores")
        found.append(figure(f"CPU of the server by {noun}", "", overlay(_value, _cores, cores)))
    if any(result.merged.usage.rss_bytes is not None for result in everything):
        memory = level_axes(everything, "RSS (MiB)")
        found.append(figure(f"Memory of the server by {noun}", "", overlay(_value, _memory, memory)))
    return found


def _series(
    name: str,
    run: int,
    results: Sequence[LevelResult],
    x: Callable[[LevelResult], float],
    y: Callable[[LevelResult], float | None],
    axes: Axes,
) -> Series:
    points = [
        Point(
            x(result),
            value,
            f"{name}, {level_name(result.level)}: {axes.y_format(value)}{doubt(result)}",
            is_hollow=is_doubtful(result),
        )
        for result in results
        if (value := y(result)) is not None
    ]
    return Series(name, points, run)


def _second_overlays(comparison: Comparison, one: LevelComparison) -> list[str]:
    rates, latencies = [], []
    for run, result in sorted(one.results.items()):
        name = comparison.names[run]
        seconds = level_seconds(result)
        moments = [(it.at_s + it.length_s / 2, it) for it in seconds if it.second.requests]
        rate_points = [
            Point(at, it.request_rate * result.batch_size, f"{name}, {it.at_s:.1f} s: {it.request_rate:.6g}/s")
            for at, it in moments
        ]
        latency_points = [
            Point(at, it.second.p95_us, f"{name}, {it.at_s:.1f} s: p95 {duration_text(it.second.p95_us)}")
            for at, it in moments
        ]
        rates.append(Series(name, rate_points, run, has_dots=len(moments) <= 40))
        latencies.append(Series(name, latency_points, run, has_dots=len(moments) <= 40))
    if not any(line.points for line in rates):
        return []
    names = legend([(line.name, line.colour) for line in rates])
    axes = Axes("seconds", "inferences per second")
    slow = Axes("seconds", "p95 latency", y_format=duration_tick, may_show_ratios=True)
    return [
        figure("Rate, second by second", "", names, line_chart(rates, axes)),
        figure("p95 latency, second by second", "", names, line_chart(latencies, slow)),
    ]


def _value(result: LevelResult) -> float:
    return result.level.value


def _percentile(percent: float) -> Callable[[LevelResult], float]:
    return lambda result: result.merged.latency.percentile(percent) / 1e3


def _cores(result: LevelResult) -> float | None:
    return result.merged.usage.cpu_cores


def _memory(result: LevelResult) -> float | None:
    size = result.merged.usage.rss_bytes
    return None if size is None else size / 2**20
