"""A thread with an event loop, and calls into it from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from naiad.errors import InternalError, UnavailableError
from naiad.lifecycle.state.load_threads import end_threads
from naiad.server.process import loop_factory

_Result = TypeVar("_Result")


class LoopThread:
    """Runs an event loop until ``stop``. Its owner starts and stops it once; any thread may call into it.

    Raises:
        UnavailableError: from calls into a loop that has ended.
    """

    def __init__(self, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = threading.Event()
        # A program that forgets to stop it can end all the same.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread and wait for its loop."""
        self._thread.start()
        self._running.wait()

    def stop(self) -> None:
        """End the loop and join the thread."""
        self.soon(self._end)
        self._thread.join()

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Have the loop call back."""
        if self._loop is None:
            raise UnavailableError("the server is not started: call start() first")
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            raise UnavailableError("the server is stopped") from None

    def run(self, function: Callable[[], _Result]) -> _Result:
        """What ``function`` returns when the loop calls it."""
        done: Future[_Result] = Future()

        def call() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        self._check_outside()
        self.soon(call)
        return done.result()

    def complete(self, coroutine: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """What a coroutine returns that the loop runs."""
        done: Future[_Result] = Future()

        async def run() -> None:
            try:
                done.set_result(await coroutine())
            except BaseException as error:
                done.set_exception(error)

        def begin() -> None:
            tasks.append(asyncio.ensure_future(run()))

        # The loop itself refers to tasks weakly.
        tasks: list[asyncio.Future[None]] = []
        self._check_outside()
        self.soon(begin)
        return done.result()

    def _check_outside(self) -> None:
        if threading.current_thread() is self._thread:
            raise InternalError("the thread of the server cannot wait for itself")

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            self._loop = loop = runner.get_loop()
            loop.call_soon(self._running.set)
            try:
                loop.run_forever()
            finally:
                end_threads(loop)

    def _end(self) -> None:
        asyncio.get_running_loop().stop()
