"""The parts that processes make of a load add up to the load."""

from __future__ import annotations

from itertools import islice

import pytest

from naiad.perf.load.schedules import constant_schedule, poisson_schedule
from naiad.perf.load.share import Share
from naiad.perf.load.source import SequenceIds


@pytest.mark.parametrize(("whole", "parts"), [(16, [6, 5, 5]), (2, [1, 1, 0]), (3, [1, 1, 1])])
def test_counts_add_up(whole: int, parts: list[int]) -> None:
    assert [Share(index, 3).count(whole) for index in range(3)] == parts


@pytest.mark.parametrize("make", [lambda: constant_schedule(700), lambda: poisson_schedule(700, seed=5)])
def test_merged_send_times_are_the_schedule(make: object) -> None:
    assert callable(make)
    whole = list(islice(make(), 999))
    parts = [list(islice(Share(index, 3).turns(make()), 333)) for index in range(3)]
    assert sorted(time for part in parts for time in part) == whole


def test_no_two_shares_use_the_same_sequence_id() -> None:
    shares = [SequenceIds((10, 40), Share(index, 4)) for index in range(4)]
    taken = [[ids.take() for _ in range(7)] for ids in shares]
    assert len({number for part in taken for number in part}) == 28
    assert all(10 <= number < 40 for part in taken for number in part)
    shares[1].free(11)
    # The range has 30 ids: share 1 has 11, 15 ... 39, all used by now but the one that was given back.
    assert sorted(shares[1].take() for _ in range(2)) == [11, 39]
