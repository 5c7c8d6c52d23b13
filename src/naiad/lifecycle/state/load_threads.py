"""Threads for the work of loading and unloading, each for one piece of work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from naiad.errors import ModelLoadError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def in_thread(function: Callable[_P, _R], *args: _P.args, **more: _P.kwargs) -> asyncio.Future[_R]:
    """Call ``function`` in a thread of its own; the future has what it returns or raises.

    A thread is not waited for when the process ends: one that a framework holds for ever must not hold the exit up. No
    pool bounds them, since a load may wait for another that it asked for; ``LoadPermits`` bounds those that load.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_R] = loop.create_future()

    def deliver(result: Any, error: BaseException | None) -> None:
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
            # A framework that calls for the end of the process ends this piece of work and nothing else.
            failure = ModelLoadError(f"{type(error).__name__}: {error}")
        try:
            loop.call_soon_threadsafe(deliver, result, failure)
        except RuntimeError:
            # The loop is closed: the server was told to abort and nobody waits.
            return

    threading.Thread(target=work, name="naiad-load", daemon=True).start()
    return done


class LoadPermit:
    """The right to load one version now; see ``LoadPermits``."""

    def __init__(self, permits: LoadPermits) -> None:
        self._permits = permits
        self._is_held = True

    def give_back(self) -> None:
        """Let another load begin; doing it again has no effect."""
        if self._is_held:
            self._is_held = False
            self._permits.free.release()


class LoadPermits:
    """At most ``count`` versions load at the same time (``--model-load-thread-count``).

    A load that waits for another one, which its model asked for, gives its permit back: it would otherwise hold up what
    it waits for. It then goes on without one.
    """

    def __init__(self, count: int) -> None:
        self.free = asyncio.Semaphore(count)

    async def take(self) -> LoadPermit:
        """Wait for a permit; those who ask first get it first."""
        await self.free.acquire()
        return LoadPermit(self)
