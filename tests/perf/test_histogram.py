"""Histograms of durations: how exact their figures are, and what they keep."""

from __future__ import annotations

import numpy as np
import pytest

from naiad.perf.histogram import DurationHistogram


def counted(durations: np.ndarray) -> DurationHistogram:
    histogram = DurationHistogram()
    histogram.add_all(durations)
    return histogram


def test_small_durations_are_exact() -> None:
    histogram = counted(np.arange(2048))
    assert [(low, width) for low, width, _ in histogram.buckets()] == [(value, 1) for value in range(2048)]


def test_buckets_hold_what_was_counted_into_them() -> None:
    durations = np.unique(np.geomspace(1, 2**40, 5000).astype(np.int64))
    for value in durations.tolist():
        ((low, width, count),) = counted(np.array([value])).buckets()
        assert count == 1
        assert low <= value < low + width
        assert width <= max(1, value / 1024)


@pytest.mark.parametrize("percent", [0, 1, 50, 90, 95, 99, 99.99, 100])
def test_percentiles_are_those_of_the_sorted_list(percent: float) -> None:
    durations = np.random.default_rng(3).lognormal(15, 1.5, 20_001).astype(np.int64)
    expected = np.sort(durations)[int(percent / 100 * (durations.size - 1) + 0.5)]
    assert counted(durations).percentile(percent) == pytest.approx(expected, rel=1e-3)


def test_mean_and_deviation_are_exact() -> None:
    durations = np.random.default_rng(4).integers(10**6, 10**8, 10_000)
    histogram = counted(durations)
    assert histogram.mean == durations.sum() / 10_000
    assert histogram.deviation == pytest.approx(durations.std(ddof=1), rel=1e-6)
    assert (histogram.least, histogram.greatest) == (durations.min(), durations.max())


def test_parts_merge_to_the_whole() -> None:
    durations = np.random.default_rng(5).integers(0, 10**9, 3_000)
    whole, merged = counted(durations), DurationHistogram()
    for part in (durations[:10], durations[10:10], durations[10:]):
        merged.merge(counted(part))
    assert list(merged.buckets()) == list(whole.buckets())
    assert (merged.count, merged.total, merged.least) == (whole.count, whole.total, whole.least)
    assert merged.deviation == pytest.approx(whole.deviation)


def test_durations_one_by_one_are_counted_as_all_at_once() -> None:
    durations = np.random.default_rng(7).lognormal(12, 3, 3_000).astype(np.int64)
    durations[:3] = -5, 0, 2**50
    whole, single = counted(durations), DurationHistogram()
    for duration in durations.tolist():
        single.add(duration)
    assert list(single.buckets()) == list(whole.buckets())
    assert (single.count, single.total, single.least, single.greatest) == (3_000, whole.total, 0, 2**50)
    assert single.deviation == pytest.approx(whole.deviation)


def test_a_count_grows_beyond_four_bytes() -> None:
    state = counted(np.array([5])).state()
    histogram = DurationHistogram.from_state({**state, "count": 2**31 - 1, "buckets": [[5, 2**31 - 1]]})
    for _ in range(2):
        histogram.add(5)
    assert list(histogram.buckets()) == [(5, 1, 2**31 + 1)]


def test_nothing_counted_gives_zeros() -> None:
    histogram = counted(np.empty(0, np.int64))
    assert (histogram.count, histogram.mean, histogram.deviation, histogram.percentile(50)) == (0, 0, 0, 0)


def test_negative_durations_count_as_zero() -> None:
    """The clocks of two processors may differ by a few nanoseconds."""
    histogram = counted(np.array([-5, 3]))
    assert (histogram.least, histogram.total) == (0, 3)


def test_the_number_of_buckets_stays_bounded() -> None:
    rng = np.random.default_rng(6)
    histogram = DurationHistogram()
    for _ in range(20):
        histogram.add_all(rng.lognormal(14, 2, 100_000).astype(np.int64))
    assert len(list(histogram.buckets())) < 25_000


def test_what_was_counted_goes_through_plain_values() -> None:
    durations = np.random.default_rng(5).lognormal(12, 3, 10_000).astype(np.int64)
    found = counted(durations)
    read = DurationHistogram.from_state(found.state())
    assert list(read.buckets()) == list(found.buckets())
    assert (read.count, read.mean, read.deviation) == (found.count, found.mean, found.deviation)
    assert (read.percentile(0), read.percentile(100)) == (found.percentile(0), found.percentile(100))
    read.add(7)
    assert read.count == 10_001
    assert DurationHistogram.from_state(DurationHistogram().state()).count == 0


def test_counts_that_do_not_add_up_are_refused() -> None:
    state = counted(np.array([5, 6])).state()
    with pytest.raises(ValueError, match="its buckets hold 2 durations, its count is 3"):
        DurationHistogram.from_state({**state, "count": 3})
