"""Threads for loading and unloading: one thread for each piece of work, and permits that bound those that load."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from naiad.errors import ModelLoadError

_P = ParamSpec("_P")
_R = TypeVar("_R")


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

    threading.Thread(target=work, name="naiad-load", daemon=True).start()
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
