"""The view of a run while it goes on, on a terminal and in a log."""

from __future__ import annotations

import io
import re
from collections import Counter
from dataclasses import replace

import pytest

from naiad.perf.report.live import LiveState, LiveView, left_text, render, stability_text, window_line
from naiad.perf.results import LoadLevel, LoadMode, Second
from naiad.perf.settings import InputSettings, LoadPlan, MeasureSettings, PerfSettings, Range
from support.perf_reports import level, report, window

LATENCIES = [200 + number for number in range(100)]
FOUR = LoadLevel(LoadMode.CONCURRENCY, 4)


def busy_state(**more: object) -> LiveState:
    given = {
        "model": "simple",
        "endpoint": "127.0.0.1:8000",
        "level": FOUR,
        "level_number": 2,
        "level_count": 5,
        "windows": [window(LATENCIES)],
        "window_limit": 10,
        "passed_s": 3.0,
        "window_s": 5.0,
        "second": Second(2.0, 1234, 0, 312.4, 1200, 3400),
        "rates": [600.0, 1234.0, 0.0],
    }
    return LiveState(**{**given, **more})  # type: ignore[arg-type]


def test_a_block() -> None:
    assert render(busy_state()) == [
        "simple at 127.0.0.1:8000",
        "Concurrency: 4 (2 of 5)  window 2 of 10  [############--------] 3 of 5 s",
        "  1,234 inferences/s  ▄█▁",
        "  latency p50 312 µs  p95 1.20 ms  p99 3.40 ms",
        "  stability: 1 of 3 windows",
        "  left: 7 s to 42 s for this level, at least 52 s for all",
    ]


def test_windows_of_a_second_or_less_show_the_last_one() -> None:
    short = busy_state(second=None, rates=[], window_limit=1, window_s=0.0)
    assert render(short)[1:] == [
        "Concurrency: 4 (2 of 5)  window 1 of 1",
        "  last window: 50 inferences/s, average latency 250 µs",
        "  stability: 1 of 3 windows",
    ]


def test_a_block_before_and_without_figures() -> None:
    assert render(LiveState(model="simple")) == ["simple"]
    assert render(LiveState(model="simple", waited_s=95.4)) == [
        "simple",
        "waiting for the first response: 1 min 35 s",
    ]
    quiet = busy_state(second=Second(0.0), rates=[0.0], errors=12, window_s=0.0, batch_size=8)
    assert render(quiet)[1:] == [
        "Concurrency: 4 (2 of 5)  window 2 of 10",
        "  0 inferences/s",
        "  latency no response",
        "  12 errors so far",
        "  stability: 1 of 3 windows",
    ]
    assert "  waiting for the first response: 2 s" in render(busy_state(waited_s=2.0))


@pytest.mark.parametrize("width", [10, 40, 79])
def test_lines_fit_the_terminal(width: int) -> None:
    lines = render(busy_state(model="m" * 200), width)
    assert max(len(line) for line in lines) == width
    assert lines[0].endswith("…")


def test_whether_the_last_windows_agree() -> None:
    steady = [window(LATENCIES)] * 3
    assert stability_text(busy_state(windows=steady)) == (
        "stability: stable: rate differs by 0%, average latency by 0%, 10% allowed"
    )
    wild = [*steady, window([number * 2 for number in LATENCIES], 3)]
    assert stability_text(busy_state(windows=wild, percentile=95)) == (
        "stability: not stable: rate differs by 50%, p95 by 100%, 10% allowed"
    )
    assert "rate differs by far too much" in stability_text(busy_state(windows=[*steady, window([])]))


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (busy_state(level_count=1, windows=[]), "left: 12 s to 47 s"),
        (busy_state(level_count=0, windows=[window(LATENCIES)] * 9), "left: 2 s"),
        (busy_state(window_s=0.0), ""),
        (busy_state(passed_s=9.0, level_count=1), "left: 5 s to 40 s"),
    ],
)
def test_the_time_left(state: LiveState, text: str) -> None:
    assert left_text(state) == text


def test_a_line_of_a_log() -> None:
    failing = window(LATENCIES, errors=Counter({("HTTP 503", ""): 3}))
    assert window_line(busy_state(windows=[window(LATENCIES), failing], percentile=95, batch_size=2)) == (
        "Concurrency: 4, window 2 of 10: 100 inferences/s, p95 294 µs, 3 errors; stability: 2 of 3 windows"
    )
    assert window_line(LiveState()) == ""


def run_through(view: LiveView) -> None:
    """The stages of a run of one level."""
    view.began(report(endpoint="127.0.0.1:8000"), PerfSettings())
    for half in range(50):
        view.waiting(half / 2)
    view.warmed_up(24.5)
    view.level_began(FOUR)
    for number in (1, 2, 3):
        view.second_passed(Second(0.0, 50, 0, 100, 200, 300), 1.0, 2.0)
        view.window_done(number, window(LATENCIES), 10)
    view.level_done(level(4, window(LATENCIES)))


def test_a_log_gets_a_line_for_each_window_and_no_control_characters() -> None:
    stream = io.StringIO()
    run_through(LiveView(PerfSettings(), stream, is_terminal=False))
    assert stream.getvalue().splitlines() == [
        "waiting for the first response: 10 s",
        "waiting for the first response: 20 s",
        "first response after 24.5 s",
        "Concurrency: 4, window 1 of 10: 50 inferences/s, average latency 250 µs; stability: 1 of 3 windows",
        "Concurrency: 4, window 2 of 10: 50 inferences/s, average latency 250 µs; stability: 2 of 3 windows",
        "Concurrency: 4, window 3 of 10: 50 inferences/s, average latency 250 µs; stability: stable:"
        " rate differs by 0%, average latency by 0%, 10% allowed",
    ]


def screen(written: str) -> list[str]:
    """What a terminal shows after the control characters for moving up and clearing were obeyed."""
    lines: list[str] = [""]
    for part in re.split(r"(\x1b\[\d*[AJ]|\n)", written):
        if part == "\n":
            lines.append("")
        elif part.endswith("A") and part.startswith("\x1b"):
            lines = [*lines[: len(lines) - 1 - int(part[2:-1])], ""]
        elif not part.startswith("\x1b"):
            lines[-1] += part
    return lines


def test_a_terminal_shows_one_block_and_nothing_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "30")
    stream = io.StringIO()
    view = LiveView(PerfSettings(), stream, is_terminal=True)
    run_through(view)
    assert screen(stream.getvalue()) == [""]
    stream.truncate(0)
    stream.seek(0)
    view.level_began(FOUR)
    for _ in range(5):
        view.second_passed(Second(0.0, 50, 0, 100, 200, 300), 1.0, 2.0)
    assert screen(stream.getvalue())[:-1] == render(view.state, 99)
    view.clear()
    view.clear()
    assert screen(stream.getvalue()) == [""]


def test_a_small_terminal_is_not_scrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("LINES", "3")
    stream = io.StringIO()
    view = LiveView(PerfSettings(), stream, is_terminal=True)
    run_through(view)
    view.level_began(FOUR)
    view.second_passed(Second(0.0, 50, 0, 100, 200, 300), 1.0, 2.0)
    shown = screen(stream.getvalue())[:-1]
    assert len(shown) == 2
    assert max(len(line) for line in shown) <= 29


@pytest.mark.parametrize(
    ("load", "count"),
    [
        (LoadPlan(), 1),
        (LoadPlan(levels=Range(1, 8, 2, True)), 4),
        (LoadPlan(LoadMode.REQUEST_RATE, Range(0.1, 0.5, 0.1, True)), 5),
        (LoadPlan(levels=Range(1, 0, 1, True)), 0),
        (LoadPlan(levels=Range(1, 8, 1, True), binary_search=True), 0),
        (LoadPlan(LoadMode.CUSTOM_INTERVALS, Range(1, 8, 1, True)), 1),
    ],
)
def test_how_many_levels_there_are(load: LoadPlan, count: int) -> None:
    settings = PerfSettings(
        input=InputSettings(batch_size=8), load=load, measure=MeasureSettings(total_requests=100, percentile=90)
    )
    view = LiveView(settings, io.StringIO(), is_terminal=True)
    before = view.state
    view.began(report(), settings)
    state = view.state
    assert state == replace(before, model="simple")
    assert state.level_count == count
    assert (state.batch_size, state.percentile, state.window_limit) == (8, 90, 1)
