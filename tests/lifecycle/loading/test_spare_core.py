"""Loads wait for a free core while requests are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from naiad.lifecycle.loading.spare_core import CoreTimes, SpareCore, read_core_times

WINDOW_S = 0.25


class Machine:
    """A machine of two cores whose spare cores in each window are given, and a clock that waits move forward."""

    def __init__(self, spare: Iterable[float]) -> None:
        self._spare: Iterator[float] = iter(spare)
        self._at_s = self._idle_s = 0.0
        self.requests = 1

    @property
    def waited_s(self) -> float:
        return self._at_s

    def read(self) -> CoreTimes:
        return CoreTimes(self._at_s, self._idle_s, None)

    async def sleep(self, seconds: float) -> None:
        self._at_s += WINDOW_S
        self._idle_s += WINDOW_S * next(self._spare)

    def gate(self, longest_s: float) -> SpareCore:
        return SpareCore(longest_s, lambda: self.requests, self.read, self.sleep)


def waited_s(machine: Machine, longest_s: float = 10.0) -> float:
    asyncio.run(machine.gate(longest_s).wait("'m' version 1", lambda: True))
    return machine.waited_s


@pytest.mark.parametrize(("spare", "windows"), [([1.9], 1), ([0.5], 1), ([0.4, 0.0, 0.6], 3)])
def test_a_load_waits_until_a_core_is_free(spare: list[float], windows: int) -> None:
    assert waited_s(Machine(spare)) == windows * WINDOW_S


def test_a_load_without_requests_does_not_wait() -> None:
    machine = Machine([])
    machine.requests = 0
    assert waited_s(machine) == 0


def test_no_load_waits_where_that_is_switched_off() -> None:
    assert waited_s(Machine([]), longest_s=0) == 0


def test_a_load_does_not_wait_for_longer_than_the_option_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert waited_s(Machine([0.1] * 8), longest_s=2.0) == 2.0
    assert [record.getMessage() for record in caplog.records] == [
        "the load of 'm' version 1 waits at most 2 s for a free core: requests use all of them",
        "loading 'm' version 1 without a free core, after 2 s",
    ]


def test_a_load_does_not_wait_once_no_request_is_under_way() -> None:
    machine = Machine([0.0] * 3)

    def count() -> int:
        machine.requests -= machine.waited_s >= 2 * WINDOW_S
        return machine.requests

    asyncio.run(SpareCore(10.0, count, machine.read, machine.sleep).wait("'m' version 1", lambda: True))
    assert machine.waited_s == 2 * WINDOW_S


def test_a_load_that_is_given_up_does_not_wait() -> None:
    machine = Machine([0.0])
    asyncio.run(machine.gate(10.0).wait("'m' version 1", lambda: not machine.waited_s))
    assert machine.waited_s == WINDOW_S


def test_the_limit_of_a_container_counts() -> None:
    # Two cores of a large machine: 1.75 of them were used in one second, while others had nothing to do.
    before, now = CoreTimes(5.0, 100.0, 3.0), CoreTimes(6.0, 130.0, 3.25)
    assert now.spare_since(before) == 0.25


def test_times_of_a_container_with_a_limit(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n")
    times = read_core_times(tmp_path)
    assert times.left_s == pytest.approx(1.5 * times.at_s - 2.5)


@pytest.mark.parametrize("limit", ["max 100000\n", "", None])
def test_times_without_a_limit(tmp_path: Path, limit: str | None) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 1\n")
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit)
    first = read_core_times(tmp_path)
    assert first.left_s is None
    assert read_core_times(tmp_path).spare_since(first) >= 0
