"""Back-pressure: requests whose callers do not read are paused, and whoever sends responses to them waits."""

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

    A thread of the model's own waits until the server says that the caller takes its responses again. The main thread
    and those of asyncio loops serve other requests, too: the one waits for as long as the server says, the others do
    not wait.

    Args:
        look: takes what has arrived, unless another thread does.
        is_given_up: whether the caller of a request gave up.
    """

    __slots__ = ("_is_given_up", "_look", "_paused", "_unseen")

    def __init__(self, look: Callable[[], object], is_given_up: Callable[[int], bool]) -> None:
        self._look = look
        self._is_given_up = is_given_up
        self._paused: dict[int, tuple[threading.Event, float]] = {}
        self._unseen = 0

    def hold(self, number: int, patience_s: float) -> None:
        """The caller of a request takes nothing for now. The oldest are forgotten when there are many."""
        self.go_on(number)
        if len(self._paused) >= MAX_PAUSED:
            self.go_on(next(iter(self._paused)))
        self._paused[number] = threading.Event(), monotonic() + patience_s

    def go_on(self, number: int) -> None:
        """The caller takes its responses again, or is gone, or has had the last one."""
        found = self._paused.pop(number, None)
        if found is not None:
            found[0].set()

    def wait(self, number: int) -> None:
        """Called before a response is sent: wait until its caller would take it, or has given up."""
        self._unseen += 1
        if self._unseen >= LOOK_EVERY:
            self._unseen = 0
            self._look()
        if self._paused and number in self._paused:
            self._wait(number)

    def _wait(self, number: int) -> None:
        found = self._paused.get(number)
        if found is None or is_in_loop():
            return
        event, until_s = found
        is_needed = threading.current_thread() is threading.main_thread()
        while not self._is_given_up(number):
            left_s = until_s - monotonic() if is_needed else PAUSE_S
            if left_s <= 0 or event.wait(min(left_s, PAUSE_S)):
                return
            self._look()


def is_in_loop() -> bool:
    """Whether this thread runs an asyncio loop; most models never import that."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
