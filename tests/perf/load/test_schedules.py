"""When requests are due: by their statistics, on no clock at all."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from naiad.perf.load.schedules import (
    constant_schedule,
    fixed_schedule,
    interval_schedule,
    mean_rate,
    poisson_schedule,
    read_intervals,
)
from naiad.perf.target.protocol import TargetError

COUNT = 20_000


def gaps(rate: float, seed: int = 0) -> np.ndarray:
    """The gaps of a Poisson schedule in ns."""
    return np.diff([0, *islice(poisson_schedule(rate, seed), COUNT)])


def test_a_constant_schedule_has_equal_gaps_and_no_drift() -> None:
    due = list(islice(constant_schedule(3000), 3001))
    assert due[0] == 0
    assert due[3000] == 1_000_000_000
    assert set(np.diff(due)) <= {333_333, 333_334}


@pytest.mark.parametrize("rate", [0.5, 100.0, 20_000.0])
def test_a_poisson_schedule_keeps_its_rate(rate: float) -> None:
    # The mean of so many gaps is within 4 of its standard deviations.
    assert gaps(rate).mean() == pytest.approx(1e9 / rate, rel=4 / COUNT**0.5)


def test_the_gaps_of_a_poisson_schedule_are_exponential_and_independent() -> None:
    found = gaps(100) / 1e7
    # Of exponential gaps the deviation is the mean, and exp(-x) of them are longer than x.
    assert found.std() == pytest.approx(1, rel=0.05)
    for bound in (0.1, 0.5, 1, 2, 4):
        assert (found > bound).mean() == pytest.approx(np.exp(-bound), abs=0.015)
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 4 / COUNT**0.5


def test_the_requests_in_a_second_vary_as_those_of_a_poisson_process() -> None:
    due = np.cumsum(gaps(100)) // 1_000_000_000
    counts = np.bincount(due.astype(int))[:-1]
    assert counts.var() == pytest.approx(counts.mean(), rel=0.4)


def test_a_seed_gives_the_same_schedule_again() -> None:
    assert gaps(50, 7).tolist() == gaps(50, 7).tolist()
    assert gaps(50, 7).tolist() != gaps(50, 8).tolist()


def test_intervals_begin_again_after_the_last() -> None:
    assert list(islice(interval_schedule([100, 300.5]), 4)) == [100_000, 400_500, 500_500, 801_000]
    assert mean_rate([2000, 6000]) == 250


def test_a_fixed_schedule_is_as_given() -> None:
    assert list(fixed_schedule([0, 1.5, 20])) == [0, 1_500_000, 20_000_000]


def test_intervals_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "intervals"
    file.write_text("100\n\n 250.5 \n")
    assert read_intervals(file) == [100, 250.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("100\nten\n", "line 2 of '.*' is 'ten', expected microseconds above 0"),
        ("-3\n", "line 1 of '.*' is '-3', expected microseconds above 0"),
        ("nan\n", "line 1 of '.*' is 'nan'"),
        ("\n", "holds no request intervals"),
    ],
)
def test_files_of_intervals_that_mean_nothing(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "intervals"
    file.write_text(text)
    with pytest.raises(TargetError, match=message):
        read_intervals(file)


def test_a_file_of_intervals_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="cannot read the request intervals"):
        read_intervals(tmp_path / "nothing")
