"""The thread of an instance that runs an asyncio loop: its start, and its end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from naiad.errors import NaiadError
from naiad.execution.instances.runner import failed_to_start

logger = logging.getLogger("naiad")


class ClosedInItsThread(Protocol):
    """What a backend creates for the thread."""

    def close(self) -> None:
        """Release its resources."""


_Created = TypeVar("_Created", bound=ClosedInItsThread)


class InstanceLoop(Generic[_Created]):
    """A thread that creates a copy of a model, runs a loop for it and closes it.

    Attributes:
        created: the copy, once ``start`` has returned.
    """

    created: _Created

    def __init__(self, name: str, create: Callable[[], _Created]) -> None:
        self._name = name
        self._create = create
        # Made before the thread runs: until then ``soon`` may queue callbacks, and ``stop`` close the loop.
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._failure: NaiadError | None = None
        self._thread = threading.Thread(target=self._main, name=f"naiad-{name}", daemon=True)

    def start(self) -> None:
        """Create the copy and wait until it is there; called by a loading thread.

        Raises:
            NaiadError: it could not be created.
        """
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Let the thread close the copy and end; what it still runs is cancelled."""
        if self._thread.ident is None:
            self._loop.close()
        elif self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds for the end; whether it has come."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def soon(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call back in the thread."""
        self._loop.call_soon_threadsafe(callback, *arguments)

    def task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a coroutine; called in the thread."""
        return self._loop.create_task(coroutine)

    def _main(self) -> None:
        loop = self._loop
        # The copy is created while the loop does not run yet: code that asks for the thread's loop finds it all the
        # same.
        asyncio.set_event_loop(loop)
        try:
            try:
                self.created = self._create()
            except NaiadError as error:
                self._failure = error
                return
            # SystemExit too: a model that calls ``sys.exit`` fails its load, and does not end the thread unseen.
            except BaseException as error:
                self._failure = failed_to_start(self._name, error)
                return
            finally:
                # After a failure as well, which ``start`` waits for too.
                self._started.set()
            loop.run_forever()
            self._end_tasks()
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        # Before the copy is closed: a generator that was left half-way may still use it while it ends.
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        try:
            self.created.close()
        except BaseException:
            logger.exception("instance '%s' failed to close", self._name)
