"""Threads for loads: each piece of work has its own, and the event loop starts the first one alone."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from naiad.errors import ModelLoadError
from naiad.lifecycle.state.load_threads import BUSY_NAME, end_threads, in_thread
from support.event_loops import run, until

WAIT_S = 20.0


def test_the_loop_starts_the_first_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    starters: list[int] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        starters.append(threading.get_ident())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)

    async def test() -> None:
        loop_thread = threading.get_ident()
        for _ in range(5):
            assert await in_thread(threading.get_ident) != loop_thread
        assert starters.count(loop_thread) == 1
        gate = threading.Event()
        waiting = [in_thread(gate.wait, WAIT_S) for _ in range(10)]
        # Work that waits for other work keeps none from running.
        assert await in_thread(lambda: threading.current_thread().name) == BUSY_NAME
        gate.set()
        assert all(await asyncio.gather(*waiting))
        assert starters.count(loop_thread) == 1

    run(test())


def test_one_thread_waits_and_ends_with_the_loop() -> None:
    before = set(threading.enumerate())

    def left() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread not in before]

    async def test() -> None:
        await asyncio.gather(*(in_thread(int) for _ in range(20)))
        await until(lambda: len(left()) == 1)
        assert BUSY_NAME not in left()

    run(test())
    gc.collect()
    run(until(lambda: not left()))


def test_what_raises_ends_no_thread() -> None:
    def leave() -> None:
        raise SystemExit(3)

    def fail() -> None:
        raise KeyError("x")

    async def test() -> None:
        with pytest.raises(ModelLoadError, match="SystemExit: 3"):
            await in_thread(leave)
        with pytest.raises(KeyError):
            await in_thread(fail)
        cancelled = in_thread(int)
        cancelled.cancel()
        assert await in_thread(int, "7") == 7

    run(test())


def test_without_room_for_threads_work_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", one)

    async def test() -> None:
        assert await asyncio.gather(*(in_thread(int, str(n)) for n in range(5))) == list(range(5))

    run(test())


def test_the_thread_that_waits_can_be_ended() -> None:
    before = set(threading.enumerate())

    def left() -> int:
        return len(set(threading.enumerate()) - before)

    async def test() -> None:
        assert await in_thread(int, "7") == 7
        await until(lambda: left() == 1)
        end_threads(asyncio.get_running_loop())
        assert not left()
        assert await in_thread(int, "8") == 8

    run(test())


def test_no_thread_takes_two_pieces_of_work() -> None:
    async def test() -> None:
        changed = threading.local()

        def is_fresh() -> bool:
            found = not hasattr(changed, "by_work")
            changed.by_work = True
            return found

        assert all([await in_thread(is_fresh) for _ in range(20)])

    run(test())
