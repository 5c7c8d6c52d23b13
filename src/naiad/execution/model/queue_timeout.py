"""The time limit of queue policies: refuses requests that have waited for too long, when they have."""

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

    ``changed`` is called after deadlines have passed: the rest may form a batch without the requests before it.
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
        """Arm the timer for one more request."""
        deadline_ns = self._queue.next_deadline_ns
        if deadline_ns == NEVER:
            return
        if self._timer is None:
            self._timer = LoopTimer(self._loop, self._due)
        self._timer.arm(deadline_ns)

    def look(self, now_ns: int) -> None:
        """Refuse the requests that are late at ``now_ns``; called before a batch is taken."""
        for request in self._queue.settle(now_ns):
            self._refuse(request)

    def close(self) -> None:
        """Stop the timer; no call back comes after this."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def _due(self) -> None:
        self.look(monotonic_ns())
        self._changed()
        # Last: batches may have been taken, and with them the earliest deadline.
        self.watch()
