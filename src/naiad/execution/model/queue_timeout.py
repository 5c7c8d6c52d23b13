"""Requests that waited for longer than their queue policy allows, and the timer that tells of them on time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns

from naiad.clock import NEVER
from naiad.eventloop.timer import LoopTimer
from naiad.request import InferRequest
from naiad.scheduling.queue.policy import PolicyQueue


class WaitingTime:
    """Has ``refuse`` called for each request of ``queue`` at its deadline, also while every instance is busy.

    ``changed`` is called after deadlines have passed: what is left may make a batch without those that stood before it.
    """

    __slots__ = ("_changed", "_loop", "_queue", "_refuse", "_timer")

    def __init__(
        self,
        queue: PolicyQueue,
        loop: asyncio.AbstractEventLoop,
        refuse: Callable[[InferRequest], object],
        changed: Callable[[], object],
    ) -> None:
        self._queue = queue
        self._loop = loop
        self._refuse = refuse
        self._changed = changed
        self._timer: LoopTimer | None = None

    def watch(self) -> None:
        """A request more waits."""
        deadline_ns = self._queue.next_deadline_ns
        if deadline_ns == NEVER:
            return
        if self._timer is None:
            self._timer = LoopTimer(self._loop, self._due)
        self._timer.arm(deadline_ns)

    def look(self, now_ns: int) -> None:
        """The queue is about to be looked at: whoever is late at ``now_ns`` leaves it first."""
        for request in self._queue.settle(now_ns):
            self._refuse(request)

    def close(self) -> None:
        """No call comes after this."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def _due(self) -> None:
        self.look(monotonic_ns())
        self._changed()
        self.watch()
