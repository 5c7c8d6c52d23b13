"""Recent latencies: what is noted, and what is forgotten."""

from __future__ import annotations

import math

import pytest

from naiad.telemetry.metrics import recent_latencies
from naiad.telemetry.metrics.recent_latencies import MAX_REQUESTS, RECENT_NS, RecentLatencies

MS = 1_000_000


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, which tests move."""
    moment = [RECENT_NS]
    monkeypatch.setattr(recent_latencies, "monotonic_ns", lambda: moment[0])
    return moment


def test_without_a_request_there_is_no_quantile(now: list[int]) -> None:
    assert all(math.isnan(value) for value in RecentLatencies().quantiles_us([0.5, 0.99]))


def test_quantiles_of_single_requests_and_of_batches(now: list[int]) -> None:
    found = RecentLatencies()
    for ms in range(1, 51):
        found.one(ms * MS, 0, 0, 0, 0)
    found.batch([-ms * MS for ms in range(51, 101)], [0] * 50, 0, 0, 0, 0, 0)
    assert found.quantiles_us([0.01, 0.5, 0.99, 1.0]) == [1000, 50_000, 99_000, 100_000]


def test_requests_become_old(now: list[int]) -> None:
    found = RecentLatencies()
    found.one(9 * MS, 0, 0, 0, 0)
    assert found.quantiles_us([1.0]) == [9000]
    now[0] += RECENT_NS // 2
    found.one(3 * MS, 0, 0, 0, 0)
    assert found.quantiles_us([0.0, 1.0]) == [3000, 9000]
    now[0] += RECENT_NS // 2 + 1
    assert found.quantiles_us([1.0]) == [3000]
    now[0] += RECENT_NS
    assert math.isnan(found.quantiles_us([1.0])[0])


def test_the_number_of_requests_is_bounded(now: list[int]) -> None:
    found = RecentLatencies()
    for ms in range(5 * MAX_REQUESTS):
        found.one(ms * MS, 0, 0, 0, 0)
    assert found.quantiles_us([0.0]) == [4 * MAX_REQUESTS * 1000]
    now[0] += RECENT_NS // 2
    found.one(0, 0, 0, 0, 0)
    assert found.quantiles_us([0.0]) == [0]
    now[0] += RECENT_NS // 2 + 1
    assert found.quantiles_us([0.0, 1.0]) == [0, 0]
