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
"""The name of a thread while it works, by which ``telemetry/slow/watch.py`` knows it."""
_IDLE_NAME: Final = "naiad-idle"
_JOIN_S: Final = 1.0

Work = Callable[[], object]


class LoadThreads:
    """Runs each piece of work in a thread of its own, at once; one more thread waits for the next piece.

    To start a thread is to wait until it runs, which takes milliseconds while loads use all cores. The event loop must
    not wait for that, so the thread that takes a piece of work starts the next one first. No thread takes a second
    piece: work may change the thread that it runs in, such as the cores that it may use.
    """

    def __init__(self) -> None:
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._last: threading.Thread | None = None

    def run(self, work: Work) -> None:
        """Run ``work``, which must not raise. Called by one thread, which starts the first one itself."""
        if self._last is None:
            self._start()
        self._work.put(work)

    def end(self) -> None:
        """End the thread that waits; work under way is not interrupted."""
        self._work.put(None)

    def join(self) -> None:
        """Wait for the end of the thread that waits, after ``end``."""
        if self._last is not None:
            self._last.join(_JOIN_S)

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name=_IDLE_NAME, daemon=True)
        thread.start()
        self._last = thread

    def _serve(self) -> None:
        thread = threading.current_thread()
        while (work := self._work.get()) is not None:
            has_successor = self._starts_successor()
            thread.name = BUSY_NAME
            work()
            if has_successor:
                return
            # It may hold a model, and the next one may be hours away.
            del work
            thread.name = _IDLE_NAME

    def _starts_successor(self) -> bool:
        try:
            self._start()
        except RuntimeError:
            # No more threads: the next piece of work has to wait for this one.
            return False
        return True


_OF_LOOPS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, LoadThreads]] = WeakKeyDictionary()


def _threads_of(loop: asyncio.AbstractEventLoop) -> LoadThreads:
    threads = _OF_LOOPS.get(loop)
    if threads is None:
        threads = _OF_LOOPS[loop] = LoadThreads()
        weakref.finalize(loop, threads.end)
    return threads


def end_threads(loop: asyncio.AbstractEventLoop) -> None:
    """End the thread that waits for work of a loop, which calls nothing more in threads.

    Called by whoever ran the loop. Without this call the thread ends when the loop is collected.
    """
    threads = _OF_LOOPS.pop(loop, None)
    if threads is not None:
        threads.end()
        threads.join()


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
