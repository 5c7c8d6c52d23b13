"""Requests per time, on a clock that is turned by hand."""

from __future__ import annotations

import math

import pytest

from naiad.clock import ManualClock
from naiad.frontends.access.rate import TokenBucket

SECOND = 1_000_000_000


def taken(bucket: TokenBucket, tries: int) -> int:
    return sum(bucket.take() == 0 for _ in range(tries))


def test_a_burst_passes_and_then_one_request_per_interval() -> None:
    clock = ManualClock(7 * SECOND)
    bucket = TokenBucket(10, 3, clock)
    assert taken(bucket, 9) == 3
    assert bucket.take() == SECOND // 10
    clock.advance(SECOND // 10 - 1)
    assert bucket.take() == 1
    clock.advance(1)
    assert taken(bucket, 9) == 1


@pytest.mark.parametrize(("per_second", "burst"), [(0.5, 1), (3, 1), (100, 7), (1_000_000, 5)])
def test_no_more_than_the_rate_passes_in_the_long_run(per_second: float, burst: int) -> None:
    clock = ManualClock()
    bucket = TokenBucket(per_second, burst, clock)
    passed = 0
    for _ in range(2000):
        passed += taken(bucket, 3)
        clock.advance(math.ceil(SECOND / per_second / 2))
    assert abs(passed - (1000 + burst)) <= 1


def test_refused_requests_use_nothing_up() -> None:
    clock = ManualClock()
    bucket = TokenBucket(1, 1, clock)
    assert taken(bucket, 1000) == 1
    clock.advance(SECOND)
    assert bucket.take() == 0


def test_quiet_times_save_up_no_more_than_a_burst() -> None:
    clock = ManualClock()
    bucket = TokenBucket(5, 2, clock)
    clock.advance(3600 * SECOND)
    assert taken(bucket, 10) == 2
