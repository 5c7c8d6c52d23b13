"""Long work is spread over the turns of the loop, and short work is done at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from naiad.clock import ManualClock
from naiad.eventloop.sliced_work import SLICE_NS, SlicedWork


class Worked:
    """What was done, in its order, on a clock that each step moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.work = SlicedWork(self.clock.now_ns)
        self.done: list[str] = []

    def steps(self, name: str, count: int, slices: float) -> Iterator[None]:
        for number in range(count):
            self.done.append(f"{name}{number}")
            self.clock.advance(int(slices * SLICE_NS))
            yield

    def note(self, what: str) -> Callable[[], None]:
        return lambda: self.done.append(what)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_short_work_is_done_at_once() -> None:
    async def check() -> None:
        found = Worked()
        found.work.run(found.steps("a", 3, 0.3))
        assert found.done == ["a0", "a1", "a2"]

    asyncio.run(check())


def test_all_work_of_a_turn_shares_one_slice() -> None:
    async def check() -> None:
        found = Worked()
        for name in "abcd":
            found.work.run(found.steps(name, 1, 0.5))
        assert found.done == ["a0", "b0"]
        await turns(1)
        assert found.done == ["a0", "b0", "c0", "d0"]
        found.work.run(found.steps("e", 1, 0.5))
        assert found.done[4:] == []
        await turns(1)
        assert found.done[4:] == ["e0"]

    asyncio.run(check())


def test_other_callbacks_come_between_the_slices() -> None:
    async def check() -> None:
        found = Worked()
        asyncio.get_running_loop().call_soon(found.note("other"))
        found.work.run(found.steps("a", 5, 0.6))
        assert found.done == ["a0", "a1"]
        await turns(1)
        assert found.done == ["a0", "a1", "other", "a2", "a3"]
        await turns(1)
        assert found.done[5:] == ["a4"]

    asyncio.run(check())


def test_short_work_does_not_wait_for_the_end_of_long_work() -> None:
    async def check() -> None:
        found = Worked()
        found.work.run(found.steps("long", 4, 1))
        found.work.run(found.steps("short", 1, 0.1))
        assert found.done == ["long0"]
        await turns(4)
        assert found.done == ["long0", "long1", "short0", "long2", "long3"]

    asyncio.run(check())


def test_work_that_raises_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        found = Worked()

        def wrong() -> Iterator[None]:
            yield from found.steps("wrong", 1, 1)
            raise ValueError("wrong")

        found.work.run(wrong())
        found.work.run(found.steps("a", 2, 1))
        await turns(4)
        assert found.done == ["wrong0", "a0", "a1"]
        assert "ValueError: wrong" in caplog.text

    asyncio.run(check())
