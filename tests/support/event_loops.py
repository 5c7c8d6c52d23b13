"""Event loops of tests: run for a bounded time, and turned until something has happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import uvloop

WAIT_S = 30.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.SelectorEventLoop,
}
Opened = TypeVar("Opened")


def run(test: Coroutine[Any, Any, None], loop: str = "uvloop") -> None:
    """Run a test on the named loop, within a time limit."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(test, 3 * WAIT_S))


def play(opening: AbstractAsyncContextManager[Opened], scenario: Callable[[Opened], Awaitable[object]]) -> None:
    """Open something on a loop of its own, run a scenario with it, and close it."""

    async def test() -> None:
        async with opening as opened:
            await scenario(opened)

    run(test())


async def until(condition: Callable[[], object], within_s: float = WAIT_S) -> None:
    """Let the loop turn until ``condition`` holds."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.001)


async def turns(count: int = 10) -> None:
    """Let the loop do what is due at the end of this turn, and what that brings about."""
    for _ in range(count):
        await asyncio.sleep(0)
