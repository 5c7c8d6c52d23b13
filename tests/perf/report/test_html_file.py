"""The HTML page: complete, closed, needing nothing from elsewhere, with a chart for everything that was measured."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from naiad.perf.report.html_file import report_html, write_html
from naiad.perf.report.scales import (
    Scale,
    duration_text,
    duration_tick,
    nice_ticks,
    ratio_ticks,
    short_number,
    spread,
)
from naiad.perf.results import ClientUsage, LevelResult, LoadMode, Report, Second, Usage
from naiad.perf.settings import PerfSettings
from support.html_pages import Page
from support.perf_reports import BEGAN_NS, level, parts, report, window

LATENCIES = [200 + number for number in range(100)]
SECONDS = [Second(0.0, 40, 0, 250, 290, 299, 0.5, 2**20), Second(1.0, 60, 2, 260, 300, 310, 0.7, 2**21)]
LEVEL_CHARTS = [
    "Rate by concurrency",
    "Latency by concurrency",
    "Latency against rate",
    "Where the time goes, by concurrency",
    "Latency by percentile",
]


def read(found: Report) -> Page:
    page = Page.read(report_html(found, PerfSettings()))
    assert page.unclosed == []
    assert page.loads == []
    return page


def captions(page: Page) -> list[str]:
    return page.texts.get("figcaption", [])


def full_level(value: float, times: int = 1) -> LevelResult:
    """A level of 2 s in which everything is set; it has 100 requests, or so many times more."""
    made = window(
        LATENCIES * times,
        server=parts(),
        usage=Usage("pid 7", 0.93, 212.4, 2**21),
        client=ClientUsage(cpu_cores=0.25, cpu_us_per_request=20),
        seconds=SECONDS,
    )
    return level(value, made, windows=[made])


def test_everything_that_was_measured_has_its_chart(tmp_path: Path) -> None:
    found = report(full_level(1), full_level(4, 2), endpoint="127.0.0.1:8000", command=("-m", "simple"))
    write_html(found, PerfSettings(), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == report_html(found, PerfSettings())
    page = read(found)
    each = ["Rate", "Latency", "Errors", "CPU of the server", "Memory of the server"]
    assert captions(page) == [*LEVEL_CHARTS, "CPU by concurrency", *each, *each]
    assert page.counts["svg"] == len(captions(page))
    assert page.texts["title"][0] == "simple: naiad perf"
    assert page.texts["h1"][0] == "simple"
    assert page.texts["code"] == ["naiad perf -m simple"]
    assert [summary.rstrip() for summary in page.texts["summary"]] == ["Concurrency: 1", "Concurrency: 4"]


def test_what_the_pointer_shows() -> None:
    page = read(report(full_level(1), full_level(4, 2)))
    titles = set(page.texts["title"])
    assert {
        "Concurrency: 4: 100 inferences/s",
        "Concurrency: 1: p95 294 µs",
        "Concurrency: 1: 50 inferences/s, p95 294 µs",
        "Concurrency: 1: queue 30.0 µs, 12%",
        "Concurrency: 1: client send/recv 25.0 µs, 10%",
        "Concurrency: 1: compute infer 50.0 µs, 20%",
        "Concurrency: 4: p90 289 µs",
        "Concurrency: 1: server 0.93 cores",
        "Concurrency: 1: client 0.25 cores",
        "1.0 s: rate 60 inferences/s",
        "0.0 s: p99 299 µs",
        "1.0 s: errors 2 errors",
        "1.0 s: CPU 0.70 cores",
        "1.0 s: RSS 2.0 MiB",
    } <= titles


def test_one_level_has_no_lines_over_levels() -> None:
    page = read(report(full_level(1)))
    assert captions(page)[:2] == ["Where the time goes, by concurrency", "Latency by percentile"]
    assert "Rate by concurrency" not in captions(page)


def test_no_server_and_no_seconds() -> None:
    page = read(report(level(10, window(LATENCIES), LoadMode.REQUEST_RATE)))
    assert captions(page) == ["Where the time goes, by request rate", "Latency by percentile"]
    assert "the server gave no figures of its own" in page.texts["small"]


@pytest.mark.parametrize("requests", [(), [0.0]])
def test_nothing_or_next_to_nothing_was_measured(requests: list[float]) -> None:
    failed = window(requests, errors=Counter({("HTTP 400", "<b>bad</b>"): 3}))
    page = read(report(level(1, failed), model="<script>alert(1)</script>"))
    assert page.texts["h1"][0] == "<script>alert(1)</script>"
    assert "3 x HTTP 400: <b>bad</b>" in page.texts["li"]
    assert read(Report()).texts["p"] == ["HTTP", "No request succeeded."]


def test_doubtful_levels_are_hollow_and_say_why() -> None:
    unstable = level(4, window(LATENCIES), unstable_reason="rate differs by 30%")
    over = level(
        8,
        window(LATENCIES, client=ClientUsage(cpu_cores=1, cpu_us_per_request=9, is_bottleneck=True)),
        is_within_limit=False,
    )
    page = read(report(level(1, window(LATENCIES)), unstable, over))
    assert "hollow: unstable, over the limit, limited by the client" in page.texts["small"]
    assert "Concurrency: 4: 50 inferences/s (unstable: rate differs by 30%)" in page.texts["title"]
    assert "Concurrency: 8: 50 inferences/s (over the latency limit; limited by the client)" in page.texts["title"]
    states = [row for row in page.texts["td"] if row in ("stable", "unstable", "over the limit, client-bound")]
    assert states == ["stable", "unstable", "over the limit, client-bound"]


def test_many_levels_and_figures_of_every_size() -> None:
    levels = [
        level(2.0**power, window([10.0**power / 10] * 30 + [1e8], 0.001 * 4**power, server=parts(requests=31)))
        for power in range(11)
    ]
    page = read(report(*levels))
    assert len(captions(page)) == len(LEVEL_CHARTS)
    # Curves of percentiles are told apart by colour: of many levels some are left out, never the ends.
    curves = [name for name in page.texts["div span"] if name.startswith("Concurrency")]
    assert len(curves) == 8
    assert (curves[0], curves[-1]) == ("Concurrency: 1", "Concurrency: 1024")


def test_seconds_of_all_windows_are_on_one_axis() -> None:
    windows = [window(LATENCIES, 2, BEGAN_NS + number * 2 * 10**9, seconds=SECONDS) for number in range(3)]
    page = read(report(level(1, windows[2], windows=windows)))
    assert {"0.0 s: rate 40 inferences/s", "5.0 s: rate 60 inferences/s"} <= set(page.texts["title"])
    assert "shaded: the windows that are reported" in page.texts["small"]


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (7, [0, 2, 4, 6, 8]),
        (100, [0, 20, 40, 60, 80, 100]),
        (0.03, pytest.approx([0, 0.01, 0.02, 0.03])),
        (12_345, [0, 2500, 5000, 7500, 10_000, 12_500]),
        (0, [0, 1]),
        (float("inf"), [0, 1]),
    ],
)
def test_ticks_are_round(high: float, ticks: list[float]) -> None:
    assert nice_ticks(high) == ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(3, 70, [2, 5, 10, 20, 50, 100]), (1, 100, [1, 2, 5, 10, 20, 50, 100]), (5, 2e6, [10.0**n for n in range(8)])],
)
def test_ticks_of_ratios(low: float, high: float, ticks: list[float]) -> None:
    assert ratio_ticks(low, high) == pytest.approx(ticks)


def test_places_on_a_scale() -> None:
    linear = Scale(0, 10, 100, 0)
    assert [linear.place(value) for value in (0, 5, 10, 20)] == [100, 50, 0, 0]
    ratios = Scale(1, 100, 0, 100, is_log=True)
    assert [ratios.place(value) for value in (1, 10, 100)] == pytest.approx([0, 50, 100])
    assert Scale(3, 3, 0, 100).place(3) == 50
    assert spread([1, 2, 3, 100], Scale(0, 100, 0, 100), 40) == [3, 100]


def test_numbers_are_short() -> None:
    numbers = [0, 0.5, 12, 950, 1234, 12_500, 3_000_000, 2e9]
    assert [short_number(number) for number in numbers] == ["0", "0.5", "12", "950", "1,234", "12.5k", "3M", "2G"]
    durations = [0.5, 5, 312.4, 1234, 12_000, 2_500_000]
    assert [duration_text(us) for us in durations] == ["0.50 µs", "5.00 µs", "312 µs", "1.23 ms", "12.0 ms", "2.50 s"]
    assert [duration_tick(us) for us in (0, 50, 2500, 1e7)] == ["0", "50 µs", "2.5 ms", "10 s"]
