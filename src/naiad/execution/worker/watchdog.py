"""The time limit for a batch in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns


class ExecutionWatchdog:
    """Watches the running batch with one timer, which is set again only when it has fired.

    So a batch that begins costs one test, and no timer of its own.

    Args:
        limit_s: how long a batch may run.
        began_ns: when the running batch began (monotonic), 0 when none runs.
        late: called when a batch has run for longer.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit_s: float,
        began_ns: Callable[[], int],
        late: Callable[[], object],
    ) -> None:
        self.limit_s = limit_s
        self._loop = loop
        self._began_ns = began_ns
        self._late = late
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Watch the batch that has begun."""
        if self._timer is None:
            self._timer = self._loop.call_later(self.limit_s, self._look)

    def stop(self) -> None:
        """Stop the timer; the next ``watch`` sets it again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        began_ns = self._began_ns()
        if not began_ns:
            return
        # The timer was set for an earlier batch, so the running one may have time left.
        left_s = self.limit_s - (monotonic_ns() - began_ns) / 1e9
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._late()
