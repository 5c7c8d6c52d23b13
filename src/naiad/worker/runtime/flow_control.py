"""Back-pressure: requests whose callers do not read are paused, and threads that send responses to them wait."""

from __future__ import annotations

import sys
import threading
from time import monotonic
from typing import Callable

MAX_PAUSED = 4096
LOOK_EVERY = 16
"""Responses that are sent between two reads from the server."""
PAUSE_S = 0.02
"""How often a thread that waits reads from the server."""


class PausedRequests:
    """The requests that are paused.

    A thread of the model's own waits until the server resumes the request. The main thread and those of asyncio loops
    serve other requests, too: the main thread waits for as long as the server says, the loops do not wait.

    Args:
        look: reads what has arrived, unless another thread does.
        is_given_up: whether the caller cancelled a request.
    """

    __slots__ = ("_is_given_up", "_look", "_paused", "_unseen")

    def __init__(self, look: Callable[[], object], is_given_up: Callable[[int], bool]) -> None:
        self._look = look
        self._is_given_up = is_given_up
        self._paused: dict[int, tuple[threading.Event, float]] = {}
        self._unseen = 0

    def pause(self, number: int, timeout_s: float) -> None:
        """Pause a request. The oldest pauses are dropped when there are many."""
        # Threads may wait for an earlier pause, whose event nobody would set any more.
        self.resume(number)
        if len(self._paused) >= MAX_PAUSED:
            self.resume(next(iter(self._paused)))
        self._paused[number] = threading.Event(), monotonic() + timeout_s

    def resume(self, number: int) -> None:
        """Resume a request: its caller reads again, or is gone, or the final response was sent."""
        found = self._paused.pop(number, None)
        if found is not None:
            found[0].set()

    def wait(self, number: int) -> None:
        """Called before a response is sent: wait until its caller reads again, or has cancelled."""
        # A thread that only sends never reads, and would not see a pause.
        self._unseen += 1
        if self._unseen >= LOOK_EVERY:
            self._unseen = 0
            self._look()
        if self._paused and number in self._paused:
            self._wait(number)

    def _wait(self, number: int) -> None:
        found = self._paused.get(number)
        # Not in a loop, whose other coroutines would stand still meanwhile.
        if found is None or is_in_loop():
            return
        event, until_s = found
        is_needed = threading.current_thread() is threading.main_thread()
        while not self._is_given_up(number):
            left_s = until_s - monotonic() if is_needed else PAUSE_S
            if left_s <= 0 or event.wait(min(left_s, PAUSE_S)):
                return
            # RESUME may lie unread: all other threads may be busy or wait here, too.
            self._look()


def is_in_loop() -> bool:
    """Whether this thread runs an asyncio loop; most models never import that."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
