"""The thread that stores traces, and its queue: the loop never waits for a disk or a collector."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

logger = logging.getLogger("naiad")

Item = TypeVar("Item")


class TraceThread(Generic[Item]):
    """Starts with the first trace and ends with :meth:`close`; traces beyond the capacity are dropped and counted.

    Attributes:
        items: the queue, which ``work`` empties in the thread; None ends it.
    """

    def __init__(self, name: str, work: Callable[[], None], action: str) -> None:
        """``action`` is the participle for the log of dropped traces: "written" or "sent"."""
        self.items: SimpleQueue[Item | None] = SimpleQueue()
        self._name = name
        self._work = work
        self._action = action
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._dropped = 0

    # On the loop

    def has_room(self, limit: int) -> bool:
        """Fewer than ``limit`` items wait and the thread runs; if not, the trace at hand counts as dropped."""
        if self.items.qsize() < limit and self._is_started():
            return True
        self._dropped += 1
        return False

    def close(self, timeout_s: float) -> bool:
        """Finish the queue. Returns whether the thread ended within ``timeout_s`` seconds; the last call."""
        if self._thread is None:
            return True
        self._closing.set()
        self.items.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _is_started(self) -> bool:
        """Start the thread; False where the system has no more threads, which costs traces and no responses."""
        if self._thread is None:
            # A daemon: a disk or a collector that hangs must not keep the server from exiting.
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    # In the thread

    def gather(self, seconds: float) -> None:
        """Wait while further items come; not once ``close`` was called."""
        self._closing.wait(seconds)

    def log_dropped(self) -> None:
        """Log how many traces have been dropped since the last time."""
        if self._dropped:
            # Without a lock: a drop at this moment may be missed, which costs one in a number of the log.
            dropped, self._dropped = self._dropped, 0
            logger.warning("%d traces were dropped: they came faster than they could be %s", dropped, self._action)
