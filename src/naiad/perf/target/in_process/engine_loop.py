"""Turns of a loop that the load generator shares with the server that it measures."""

from __future__ import annotations

import asyncio
import select
import selectors
import time
from collections.abc import Callable
from typing import Final

from naiad.perf.target.loop import EpollLoop

_EXACT_NS: Final = 20_000_000
_MAX_SELECT: Final = 1024
_LONGEST_NS: Final = 500_000
"""How long a turn goes on once it has something to do: a model that responds at once leaves something due for ever."""

clock = time.monotonic_ns


class TurnSelector(selectors.DefaultSelector):
    """The selector of an asyncio loop that runs in turns: it waits once, and ends the turn rather than wait again."""

    def __init__(self) -> None:
        super().__init__()
        self._until_ns = 0
        self._end_ns = 0
        self._is_turning = False
        self.end_turn: Callable[[], None] = lambda: None

    def begin_turn(self, until_ns: int) -> None:
        """Let the next run of the loop wait once, until a time on the monotonic clock at the latest."""
        self._until_ns = until_ns
        self._end_ns = 0
        self._is_turning = True

    def leave_turns(self) -> None:
        """Wait as any other selector."""
        self._is_turning = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The events that are there, or come in time."""
        if not self._is_turning:
            return super().select(timeout)
        is_due = timeout is not None and timeout <= 0
        found = super().select(0) if is_due or self._end_ns else self._wait(timeout)
        now = clock()
        if not self._end_ns:
            self._end_ns = min(self._until_ns, now + _LONGEST_NS)
        if not (is_due or found) or now >= self._end_ns:
            self.end_turn()
        return found

    def _wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        left_ns = max(self._until_ns - clock(), 0)
        wait_s = left_ns / 1e9 if timeout is None else min(left_ns / 1e9, timeout)
        if wait_s * 1e9 < _EXACT_NS and self.fileno() < _MAX_SELECT:
            # epoll counts in milliseconds.
            select.select((self.fileno(),), (), (), wait_s)
            wait_s = 0
        return super().select(wait_s)


class EngineLoop(EpollLoop):
    """The load generator's view of an asyncio loop. Closing it leaves the asyncio loop as it is."""

    serves = True

    def __init__(self, loop: asyncio.AbstractEventLoop, selector: TurnSelector) -> None:
        super().__init__()
        self._asyncio = loop
        self._selector = selector

    def turn(self, until_ns: int) -> None:
        """Wait for events, until a time on the monotonic clock at the latest, and run what they cause."""
        self.flush()
        self._selector.begin_turn(until_ns)
        self._asyncio.run_forever()
        self._selector.leave_turns()
