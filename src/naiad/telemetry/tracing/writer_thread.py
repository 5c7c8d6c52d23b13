"""The thread that traces are handed to, and what waits for it: the loop never waits for a disk or a collector."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

logger = logging.getLogger("naiad")

Item = TypeVar("Item")


class TraceThread(Generic[Item]):
    """Begins with the first trace and ends with :meth:`close`; what it has no room for is dropped and counted.

    Attributes:
        items: what waits, taken out by ``work`` in the thread; None is the last of it.
    """

    def __init__(self, name: str, work: Callable[[], None], action: str) -> None:
        """``action`` says in the log what the traces came too fast for: "written" or "sent"."""
        self.items: SimpleQueue[Item | None] = SimpleQueue()
        self._name = name
        self._work = work
        self._action = action
        self._thread: threading.Thread | None = None
        self._dropped = 0

    # On the loop

    def has_room(self, limit: int) -> bool:
        """Fewer than ``limit`` items wait and the thread runs; if not, the trace at hand counts as dropped."""
        if self.items.qsize() < limit and self._is_started():
            return True
        self._dropped += 1
        return False

    def close(self, timeout_s: float) -> bool:
        """Have what waits worked off; the last call. Whether the thread ended within ``timeout_s`` seconds."""
        if self._thread is None:
            return True
        self.items.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _is_started(self) -> bool:
        """The thread runs; False where the system has none to give, which costs traces and no answers."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    # In the thread

    def tell_dropped(self) -> None:
        """Say in the log how many traces have been dropped since it was said last."""
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            logger.warning("%d traces were dropped: they came faster than they could be %s", dropped, self._action)
