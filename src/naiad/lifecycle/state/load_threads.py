"""Threads for loading and unloading: one thread for each piece of work, and permits that bound those that load."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from naiad.errors import ModelLoadError

_P = ParamSpec("_P")
_R = TypeVar("_R")

BUSY_NAME: Final = "naiad-load"
"""The name of a thread while it works."""
_IDLE_NAME: Final = "naiad-idle"

Work = Callable[[], object]


class LoadThreads:
    """Runs each piece of work in a thread of its own, at once, and has one more thread that waits for the next piece.

    To start a thread is to wait until it runs, which takes milliseconds while loads use all cores. The event loop must
    not wait for that, so the thread that takes a piece of work starts the next one.
    """

    def __init__(self) -> None:
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        # Those that wait, and those that will once they have started.
        self._idle = 0
        self._has_begun = False

    def run(self, work: Work) -> None:
        """Run ``work``, which must not raise. Called by one thread, which starts the first one itself."""
        if not self._has_begun:
            self._idle = 1
            _start(self._serve)
            self._has_begun = True
        self._work.put(work)

    def end(self) -> None:
        """End the thread that waits; work under way is not interrupted."""
        self._work.put(None)

    def _serve(self) -> None:
        thread = threading.current_thread()
        while (work := self._work.get()) is not None:
            thread.name = BUSY_NAME
            self._replace()
            work()
            # It may hold a model, and the next one may be hours away.
            del work
            thread.name = _IDLE_NAME
            with self._lock:
                if self._idle:
                    return
                self._idle += 1

    def _replace(self) -> None:
        """Start another thread to wait in place of this one, unless there is one."""
        with self._lock:
            self._idle -= 1
            if self._idle:
                return
            self._idle = 1
        try:
            _start(self._serve)
        except RuntimeError:
            # No more threads: work waits for this one.
            with self._lock:
                self._idle -= 1


_OF_LOOPS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, LoadThreads]] = WeakKeyDictionary()


def _threads_of(loop: asyncio.AbstractEventLoop) -> LoadThreads:
    threads = _OF_LOOPS.get(loop)
    if threads is None:
        threads = _OF_LOOPS[loop] = LoadThreads()
        weakref.finalize(loop, threads.end)
    return threads


def _start(target: Callable[[], object]) -> None:
    threading.Thread(target=target, name=_IDLE_NAME, daemon=True).start()


def in_thread(function: Callable[_P, _R], *args: _P.args, **more: _P.kwargs) -> asyncio.Future[_R]:
    """Call ``function`` in a thread of its own; the future gets its result or its exception.

    The exit of the process does not wait for the thread: a framework may block in it for ever. No pool bounds the
    threads, since a load may wait for another load that it requested; ``LoadPermits`` bounds those that load.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_R] = loop.create_future()

    def deliver(result: Any, error: BaseException | None) -> None:
        # The waiting task was cancelled meanwhile; its result has no taker.
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def work() -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = function(*args, **more)
        except Exception as error:
            failure = error
        except BaseException as error:
            # A framework that raises SystemExit ends this piece of work, not the server.
            failure = ModelLoadError(f"{type(error).__name__}: {error}")
        try:
            loop.call_soon_threadsafe(deliver, result, failure)
        except RuntimeError:
            # The loop is closed: the server was aborted and nothing waits for the result.
            return

    _threads_of(loop).run(work)
    return done


class LoadPermit:
    """The right to load one version now; see ``LoadPermits``."""

    def __init__(self, permits: LoadPermits) -> None:
        self._permits = permits
        self._is_held = True

    def release(self) -> None:
        """Release the permit; a second call has no effect."""
        if self._is_held:
            self._is_held = False
            self._permits.free.release()


class LoadPermits:
    """At most ``count`` versions load at the same time (``--model-load-thread-count``).

    A load that waits for another load that its model requested releases its permit first: that load may need it. It
    resumes without a permit.
    """

    def __init__(self, count: int) -> None:
        self.free = asyncio.Semaphore(count)

    async def take(self) -> LoadPermit:
        """Wait for a permit, first come first served."""
        await self.free.acquire()
        return LoadPermit(self)
