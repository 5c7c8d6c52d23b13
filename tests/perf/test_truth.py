"""What is measured is what happened: known delays, stalls, schedules, first responses."""

from __future__ import annotations

import pytest

from naiad.perf.progress import Progress
from naiad.perf.results import Second
from support.perf_peer import peer
from support.perf_runs import measure, measure_level, windows

MODEL = ("-m", "known", "-u")


@pytest.mark.parametrize("load", [("--concurrency-range", "4"), ("--request-rate-range", "100")])
def test_a_known_delay_is_what_is_measured(load: tuple[str, str]) -> None:
    with peer(delay_ms=20) as address:
        level = measure_level(*MODEL, address, *load, *windows(300))
    found = level.merged.latency
    assert found.count > 20
    assert found.least >= 20e6
    assert 20e6 <= found.percentile(50) < 30e6


@pytest.mark.slow
def test_a_stall_costs_all_the_requests_that_were_due_meanwhile() -> None:
    with peer(stall_ms=200, stall_after_ms=1500) as address:
        level = measure_level(*MODEL, address, "--request-rate-range", 1000, "--request-count", 4000)
    found = level.merged.latency
    assert found.count == 4000
    # Of 4,000 requests 200 were due in the stall; the 40 slowest of them waited for at least 160 ms.
    assert found.percentile(99) >= 150e6


@pytest.mark.slow
def test_the_first_second_keeps_its_schedule() -> None:
    with peer() as address:
        level = measure_level(*MODEL, address, "--request-rate-range", 200, "--request-count", 200)
    merged = level.merged
    assert merged.requests == merged.sent == merged.send_delay.count == 200
    assert merged.duration_s == pytest.approx(1.0, abs=0.2)


@pytest.mark.slow
def test_no_request_is_dropped_when_the_server_is_slow() -> None:
    with peer(delay_ms=300) as address:
        level = measure_level(*MODEL, address, "--request-rate-range", 250, "--request-count", 250)
    assert level.merged.requests == 250
    assert level.merged.latency.percentile(50) < 400e6


class Waits(Progress):
    """Notes what is shown of the first response."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.warm: float | None = None
        self.seconds = 0

    def waiting(self, seconds: float) -> None:
        self.waited.append(seconds)

    def warmed_up(self, seconds: float) -> None:
        self.warm = seconds

    def second_passed(self, second: Second, passed_s: float, window_s: float) -> None:
        self.seconds += 1


@pytest.mark.slow
def test_a_slow_first_response_is_waited_for_and_in_no_window() -> None:
    waits = Waits()
    with peer(first_ms=1800) as address:
        report = measure(*MODEL, address, *windows(300), progress=waits)
    assert report.warmup_ns is not None
    assert report.warmup_ns >= 1.8e9
    assert waits.warm == report.warmup_ns / 1e9
    assert len(waits.waited) >= 2
    assert all(window.latency.greatest < 1.8e9 for window in report.levels[0].windows)


def test_a_request_count_sends_exactly_so_many() -> None:
    with peer() as address:
        level = measure_level(*MODEL, address, "--request-count", 37, "--concurrency-range", 4)
    assert (level.merged.requests, level.merged.sent, len(level.windows)) == (37, 37, 1)
    assert level.unstable_reason == ""


@pytest.mark.slow
def test_count_windows_end_when_they_have_enough() -> None:
    with peer(delay_ms=5) as address:
        words = ("--measurement-mode", "count_windows", "--measurement-request-count", 20)
        level = measure_level(*MODEL, address, *words, "-r", 1)
    assert level.merged.requests >= 20


@pytest.mark.parametrize("form", ["chunked", "close"])
def test_responses_of_other_servers_are_read(form: str) -> None:
    with peer(**{form: 1}) as address:
        level = measure_level(*MODEL, address, "--request-count", 50, "--concurrency-range", 3)
    assert (level.merged.requests, dict(level.merged.errors)) == (50, {})
