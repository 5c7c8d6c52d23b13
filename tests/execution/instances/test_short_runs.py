"""Runs that are shorter than the way into a thread are made by the event loop, and longer ones by the thread."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from naiad.backend_api.backend import Arrays
from naiad.config.spec import BatchingSpec
from naiad.errors import BackendError
from naiad.execution.instances.short_runs import LIMIT_NS, REST_RUNS, ShortRuns
from naiad.execution.model.queue_scheduler import LONGEST_TURN_NS
from support.event_loops import run
from support.loaded_models import POISON, Caller, FunctionBackend, loaded, picky, spec

SHORT = 10_000
LONG = 2 * LIMIT_NS


class ByShape(FunctionBackend):
    """The time of its runs depends on shapes alone."""

    runs_by_shape = True


class OnTheLoop(FunctionBackend):
    """All of its runs are made by the event loop."""

    runs_inline = True


def test_nothing_is_expected_before_the_first_run() -> None:
    assert not ShortRuns().expects(64)


def test_a_short_run_in_the_thread_makes_the_next_one_run_here() -> None:
    runs = ShortRuns()
    runs.ran_in_thread(64, LONG)
    assert not runs.expects(64)
    runs.ran_in_thread(64, SHORT)
    runs.ran_in_thread(64, LONG)
    assert runs.expects(64)


@pytest.mark.parametrize(
    ("seen", "size", "expected"),
    [(64, 32, True), (64, 0, True), (64, 256, True), (64, 512, False), (64, 1 << 40, False)],
)
def test_larger_batches_are_expected_to_take_longer_in_proportion(seen: int, size: int, expected: bool) -> None:
    runs = ShortRuns()
    runs.ran_in_thread(seen, LIMIT_NS // 5)
    assert runs.expects(size) is expected


def test_what_lies_between_a_short_and_a_long_size_is_in_proportion_to_the_short_one() -> None:
    runs = ShortRuns()
    runs.ran_in_thread(64, SHORT)
    runs.ran_in_thread(1 << 20, LONG)
    assert runs.expects(128)
    assert not runs.expects(1 << 18)
    assert not runs.expects(1 << 20)


def test_one_outlier_says_little_and_many_say_all() -> None:
    runs = ShortRuns()
    runs.ran_in_thread(64, SHORT)
    runs.ran_here(64, 1000 * LIMIT_NS)
    assert runs.expects(64)
    for _ in range(100):
        runs.ran_here(64, LONG)
    assert not runs.expects(64)


def test_a_size_that_has_become_long_is_tried_again_after_many_runs() -> None:
    runs = ShortRuns()
    runs.ran_here(64, LONG)
    for _ in range(REST_RUNS + 1):
        assert not runs.expects(64)
        runs.ran_in_thread(64, SHORT)
    assert runs.expects(64)


def test_the_event_loop_runs_short_batches_itself() -> None:
    async def scenario() -> None:
        here = threading.get_ident()
        threads: list[int] = []

        def noted(inputs: Arrays, outputs: object) -> Arrays:
            threads.append(threading.get_ident())
            return {"y": -inputs["x"]}

        with loaded(spec(), ByShape(lambda index: noted)) as model:
            for number in range(50):
                caller = Caller(number)
                model.submit(caller)
                assert (await caller.outputs())["y"].tolist() == [[-number]]
        # A thread may be slow at first, on a busy machine.
        assert threads[0] != here
        assert here in threads
        assert model.statistics.success.count == model.statistics.execution_count == 50

    run(scenario())


def test_the_thread_runs_what_is_large_or_has_become_long() -> None:
    async def scenario() -> None:
        here = threading.get_ident()
        threads: list[int] = []
        pause_s = 0.0

        def noted(inputs: Arrays, outputs: object) -> Arrays:
            threads.append(threading.get_ident())
            time.sleep(pause_s)
            return {"y": -inputs["x"]}

        async def ran_by(*values: float) -> int:
            caller = Caller(*values)
            model.submit(caller)
            await caller.outputs()
            return threads[-1]

        with loaded(spec(max_batch_size=1 << 16), ByShape(lambda index: noted)) as model:
            await until_here(ran_by, here)
            assert await ran_by(*range(1 << 15)) != here
            pause_s = 3 * LIMIT_NS / 1e9
            for _ in range(200):
                if await ran_by(1) != here:
                    break
            else:
                raise AssertionError("long runs stay on the loop")

    run(scenario())


async def until_here(ran_by: object, here: int) -> None:
    for _ in range(200):
        if await ran_by(1) == here:  # type: ignore[operator]
            return
    raise AssertionError("no run was made on the loop")


def test_failures_on_the_loop_are_those_of_the_thread() -> None:
    async def scenario() -> None:
        with loaded(spec(), ByShape(lambda index: picky)) as model:
            for _ in range(50):
                good, bad = Caller(1), Caller(POISON)
                for caller in (good, bad):
                    model.submit(caller)
                assert (await good.outputs())["y"].tolist() == [[-1]]
                with pytest.raises(BackendError, match="poisoned"):
                    await bad.outputs()

    run(scenario())


def test_a_model_that_may_depend_on_values_runs_in_its_thread() -> None:
    async def scenario() -> None:
        here = threading.get_ident()
        threads: set[int] = set()

        def noted(inputs: Arrays, outputs: object) -> Arrays:
            threads.add(threading.get_ident())
            return {"y": -inputs["x"]}

        with loaded(spec(), noted) as model:
            for _ in range(50):
                caller = Caller(1)
                model.submit(caller)
                await caller.outputs()
        assert here not in threads and len(threads) == 1

    run(scenario())


def test_a_long_queue_of_short_runs_does_not_hold_up_the_event_loop() -> None:
    async def scenario() -> None:
        ran = 0

        def slow(inputs: Arrays, outputs: object) -> Arrays:
            nonlocal ran
            ran += 1
            time.sleep(2 * LONGEST_TURN_NS / 1e9)
            return {"y": -inputs["x"]}

        with loaded(spec(max_batch_size=1, batching=BatchingSpec((1,))), OnTheLoop(lambda index: slow)) as model:
            callers = [Caller(number) for number in range(5)]
            for caller in callers:
                model.submit(caller)
            seen = []
            while ran < len(callers):
                seen.append(ran)
                await asyncio.sleep(0)
            assert len(set(seen)) >= len(callers) - 1
            for number, caller in enumerate(callers):
                assert (await caller.outputs())["y"].tolist() == [[-number]]

    run(scenario())
