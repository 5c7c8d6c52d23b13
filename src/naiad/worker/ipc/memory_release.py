"""Releases much memory to the system in a thread: that takes milliseconds, in which an event loop serves nobody."""

from __future__ import annotations

import os
from _thread import start_new_thread
from queue import Empty, SimpleQueue
from typing import Callable

MUCH_BYTES = 1 << 17
"""The size from which on memory is released in the thread."""
IDLE_S = 1.0
"""How long the thread waits for more to do before it ends."""

Work = Callable[[], object]


class MemoryRelease:
    """Does what releases memory. Its thread begins when it is needed, and ends when it has nothing to do."""

    def __init__(self) -> None:
        # Its ``put`` may interrupt itself: the last reference to memory is dropped anywhere.
        self._waiting: SimpleQueue[Work] = SimpleQueue()
        # The process that the thread belongs to; 0 without a thread. A fork has none.
        self._process = 0

    def release(self, size: int, work: Work) -> None:
        """Do ``work``, which releases ``size`` bytes: at once, or in the thread if they are many."""
        if size < MUCH_BYTES:
            work()
            return
        self._waiting.put(work)
        process = os.getpid()
        if self._process == process:
            return
        self._process = process
        try:
            # No ``Thread``, whose locks this thread may hold just now.
            start_new_thread(self._run, ())
        except RuntimeError:
            # There can be no further thread, or the interpreter ends.
            self._process = 0
            self._do_all()

    def _run(self) -> None:
        while True:
            try:
                work = self._waiting.get(timeout=IDLE_S)
            except Empty:
                self._process = 0
                # Who adds something now starts another thread, and before that nobody did.
                if self._waiting.empty():
                    return
                self._process = os.getpid()
            else:
                work()
                # It may refer to memory.
                del work

    def _do_all(self) -> None:
        while True:
            try:
                work = self._waiting.get_nowait()
            except Empty:
                return
            work()


memory_release = MemoryRelease()
"""That of this process."""
