"""Restarts of an instance's worker. Its end and the next start may take long, so threads wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from naiad.errors import ModelLoadError
from naiad.execution.worker.process import WorkerProcess

FIRST_S: Final = 0.1
LONGEST_S: Final = 30.0
WORKING_S: Final = 0.8
"""The longest pause after a worker that had done some work: one bad request may have ended it."""
HEALTHY_AFTER_S: Final = 60.0
MAX_WAIT_S: Final = 4.0
"""Requests wait for a worker whose restart is due within this time, and fail at once otherwise."""


class StartedWorker(NamedTuple):
    """A worker that is ready, and whether its model has ``is_ready()``."""

    process: WorkerProcess
    has_ready_check: bool


class RestartBackoff:
    """Pauses before restarts, which grow while workers end one after the other.

    Attributes:
        next_s: the next pause, in seconds.
    """

    def __init__(self) -> None:
        self.next_s = FIRST_S

    def ended(self, lived_s: float, worked: bool) -> None:
        """A worker has ended: after how long, and whether it had done some work."""
        if lived_s > HEALTHY_AFTER_S:
            # Its end has nothing to do with its start, so the pauses begin anew.
            self.next_s = FIRST_S
        elif worked:
            self.next_s = min(self.next_s, WORKING_S)

    @property
    def is_long(self) -> bool:
        """Whether the next pause is longer than requests wait."""
        return self.next_s > MAX_WAIT_S

    def take(self) -> float:
        """The next pause, in seconds; the one after it is longer."""
        pause_s = self.next_s
        self.next_s = min(2 * pause_s, LONGEST_S)
        return pause_s


class WorkerSupervisor:
    """Ends and restarts the worker of an instance, one at a time. Used on the event loop.

    Args:
        name: of the instance.
        loop: the event loop.
        spawn: starts a worker and waits until it is ready; called in a thread.
        ended: called with a worker that has ended, and how.
        came: called with a worker that is ready, or with None and the reason; not after ``stop``.

    Attributes:
        back_off: the pauses before restarts.
        is_over: the instance stops, and no worker is started any more; may be set in any thread.
    """

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        spawn: Callable[[], StartedWorker],
        ended: Callable[[WorkerProcess, str], None],
        came: Callable[[StartedWorker | None, str], None],
    ) -> None:
        self.back_off = RestartBackoff()
        self.is_over = False
        self._name = name
        self._loop = loop
        self._spawn = spawn
        self._ended = ended
        self._came = came
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def stop(self) -> None:
        """Start no worker any more. A worker whose start or end is under way is ended and closed."""
        self.is_over = True
        # They are the instance's, which owns this.
        self._spawn, self._ended, self._came = _refuse, _close, _give_up_late
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def join(self, timeout: float | None) -> None:
        """Wait for the thread, if one is at work; may be called in any thread."""
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def end(self, process: WorkerProcess) -> None:
        """End a worker in a thread: that of a large one takes long."""
        self._in_thread("end", lambda: self._end(process))

    def start_later(self) -> None:
        """Start a worker after a pause."""
        self._timer = self._loop.call_later(self.back_off.take(), self._start)

    def _start(self) -> None:
        self._timer = None
        if not self.is_over:
            # Not a pool's thread: the workers of many instances may be restarted at a time.
            self._in_thread("start", self._start_again)

    def _in_thread(self, what: str, work: Callable[[], None]) -> None:
        # Nothing can wait for a thread that has not begun.
        with self._starting:
            self._thread = threading.Thread(target=work, name=f"naiad-{what}-{self._name}", daemon=True)
            self._thread.start()

    def _end(self, process: WorkerProcess) -> None:
        how = process.exit_reason()
        try:
            self._loop.call_soon_threadsafe(self._notify_ended, process, how)
        except RuntimeError:
            # The loop is closed, and with it the server.
            process.close()

    def _notify_ended(self, process: WorkerProcess, how: str) -> None:
        self._thread = None
        self._ended(process, how)

    def _start_again(self) -> None:
        spawned: StartedWorker | None = None
        failure = ""
        try:
            spawned = self._spawn()
        except Exception as error:
            failure = f"it cannot be started again: {error}"
        try:
            self._loop.call_soon_threadsafe(self._notify_started, spawned, failure)
        except RuntimeError:
            # The loop is closed, and with it the server.
            _give_up(spawned)

    def _notify_started(self, spawned: StartedWorker | None, failure: str) -> None:
        self._thread = None
        if self.is_over:
            _give_up_late(spawned, failure)
        else:
            self._came(spawned, failure)


def _refuse() -> StartedWorker:
    raise ModelLoadError("the instance has stopped")


def _close(process: WorkerProcess, how: str) -> None:
    process.close()


def _give_up_late(spawned: StartedWorker | None, failure: str) -> None:
    """End a worker that was ready too late, in a thread: this runs on the loop, which must not wait for it."""
    threading.Thread(target=_give_up, args=[spawned], daemon=True).start()


def _give_up(spawned: StartedWorker | None) -> None:
    """End a worker; that may take seconds."""
    if spawned is not None:
        spawned.process.end()
        spawned.process.close()
