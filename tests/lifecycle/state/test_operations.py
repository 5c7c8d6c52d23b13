"""Operations on models take turns, and none waits for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from naiad.errors import InvalidArgumentError, ServerStoppingError, UnavailableError
from naiad.lifecycle.state.operations import MAX_WAITING, Operation, Operations
from support.http_application import run


async def settle(*works: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Start each and let it go as far as it comes."""
    tasks = [asyncio.ensure_future(work) for work in works]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def hold(operations: Operations, name: str, until: asyncio.Event, order: list[str], label: str) -> None:
    async with operations.turn(name):
        order.append(label)
        await until.wait()


def test_one_at_a_time_and_in_order() -> None:
    async def test() -> None:
        operations, go, order = Operations(), asyncio.Event(), list[str]()
        tasks = await settle(*(hold(operations, "m", go, order, label) for label in "abc"))
        assert order == ["a"]
        await settle(hold(operations, "other", go, order, "x"))
        assert order == ["a", "x"]
        assert not await operations.wait_idle(0.0)
        go.set()
        await asyncio.gather(*tasks)
        assert order == ["a", "x", "b", "c"]
        assert await operations.wait_idle(0.0)

    run(test())


def test_one_that_fails_or_is_cancelled_lets_the_next_one_go() -> None:
    async def test() -> None:
        operations, never, go, order = Operations(), asyncio.Event(), asyncio.Event(), list[str]()
        go.set()
        first, second, third = await settle(
            hold(operations, "m", never, order, "a"),
            hold(operations, "m", never, order, "b"),
            hold(operations, "m", go, order, "c"),
        )
        second.cancel()
        await settle()
        first.cancel()
        await asyncio.wait_for(third, 1)
        assert order == ["a", "c"]

    run(test())


async def ask(operations: Operations, asker: Operation, name: str) -> Operation:
    async with operations.turn(name, asker) as found:
        return found


def test_what_would_wait_for_itself_is_refused() -> None:
    async def test() -> None:
        operations = Operations()
        async with operations.turn("a") as a:
            with pytest.raises(InvalidArgumentError, match="'a' waits for 'a'"):
                await ask(operations, a, "a")
            async with operations.turn("b", a) as b:
                for name in "ab":
                    with pytest.raises(InvalidArgumentError, match="Models cannot load or unload themselves"):
                        await ask(operations, b, name)
                assert (await ask(operations, b, "c")).name == "c"

    run(test())


def test_a_circle_over_queues_is_found() -> None:
    async def test() -> None:
        operations = Operations()
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(operations.turn("a"))
            b = await stack.enter_async_context(operations.turn("b"))
            # A later operation on b waits for b; c waits for that; a waits for c.
            (waits,) = await settle(ask(operations, a, "b"))
            with pytest.raises(InvalidArgumentError):
                await ask(operations, b, "a")
            c = await stack.enter_async_context(operations.turn("c", b))
            with pytest.raises(InvalidArgumentError):
                await ask(operations, c, "a")
            waits.cancel()
            await settle()
            (waits,) = await settle(ask(operations, c, "a"))
            assert not waits.done()
            waits.cancel()

    run(test())


def test_those_that_wait_are_bounded() -> None:
    async def test() -> None:
        operations, go, order = Operations(), asyncio.Event(), list[str]()
        tasks = await settle(*(hold(operations, "m", go, order, "x") for _ in range(MAX_WAITING)))
        with pytest.raises(UnavailableError, match=f"{MAX_WAITING} operations on model 'm'"):
            await hold(operations, "m", go, order, "late")
        go.set()
        await asyncio.gather(*tasks)

    run(test())


def test_those_that_nobody_asked_for_are_not_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("naiad.lifecycle.state.operations.MAX_REQUESTED", 3)

    async def test() -> None:
        operations, go = Operations(), asyncio.Event()

        async def own(name: str) -> None:
            async with operations.turn(name, is_requested=False):
                await go.wait()

        tasks = await settle(*(own("m") for _ in range(2 * MAX_WAITING)), *(own(f"m{number}") for number in range(8)))
        with pytest.raises(UnavailableError, match=f"{2 * MAX_WAITING} operations on model 'm' and 0 on all"):
            await hold(operations, "m", go, [], "late")
        # They take nobody's place either.
        asked = await settle(*(hold(operations, f"other{number}", go, [], "x") for number in range(3)))
        with pytest.raises(UnavailableError, match="and 3 on all models"):
            await hold(operations, "one more", go, [], "x")
        go.set()
        await asyncio.gather(*tasks, *asked)
        assert await operations.wait_idle(0.0)

    run(test())


def test_after_the_end_none_begins() -> None:
    async def test() -> None:
        operations, go, order = Operations(), asyncio.Event(), list[str]()
        running, waiting = await settle(*(hold(operations, "m", go, order, label) for label in "ab"))
        operations.close()
        with pytest.raises(ServerStoppingError):
            await hold(operations, "m", go, order, "c")
        go.set()
        await running
        with pytest.raises(ServerStoppingError):
            await waiting
        assert order == ["a"]
        assert await operations.wait_idle(1)

    run(test())
