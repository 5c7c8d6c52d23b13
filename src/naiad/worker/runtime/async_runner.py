"""Running a model whose ``execute`` is a coroutine: the main thread runs an asyncio loop, which reads as well."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from ..ipc.errors import ServerGoneError, describe
from .batch import read_batch
from .executor import Executor

if TYPE_CHECKING:
    from .host import RuntimeHost

CANCEL_S = 1.0


class LoopRunner:
    """Executes batches as tasks of one loop: one after the other, in a decoupled model side by side."""

    def __init__(self, host: RuntimeHost) -> None:
        self.loop = asyncio.new_event_loop()
        # What ``asyncio.get_event_loop()`` returns to the model, also before the loop runs.
        asyncio.set_event_loop(self.loop)
        self._host = host
        self._executor: Executor | None = None
        self._tasks: set[Any] = set()
        self._is_reading = False
        self._is_scheduled = False
        self._gone: ServerGoneError | None = None
        self._ended = False

    def run(self, executor: Executor) -> None:
        """Execute until ``FINALIZE``.

        Raises:
            ServerGoneError: the server closed the connection.
        """
        self._executor = executor
        self.loop.add_reader(self._host.channel.fileno(), self._read)
        # For frames that another thread has read before this loop runs.
        self.loop.call_soon(self._process)
        while not self._ended:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # asyncio hands these on when a task of the model raises them. They end neither loop nor process.
                self._host.log("ERROR", f"a task of the model raised {describe(error)}")
        self.loop.remove_reader(self._host.channel.fileno())
        if self._gone is not None:
            raise self._gone

    def close(self) -> None:
        """Cancel the tasks that are left, and give them a moment to end."""
        if left := asyncio.all_tasks(self.loop):
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_S))

    def work_arrived(self) -> None:
        """There is something new in the session's inbox. May be called by any thread."""
        # While the loop reads, it looks into the inbox right afterwards by itself.
        if not self._is_reading and not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon_threadsafe(self._process)

    def _read(self) -> None:
        self._is_reading = True
        try:
            self._host.channel.poll()
        except ServerGoneError as error:
            self._gone = error
            self._stop()
            return
        finally:
            self._is_reading = False
        self._process()

    def _process(self) -> None:
        # First: work that arrives from here on schedules another call.
        self._is_scheduled = False
        executor = self._executor
        while executor is not None and (executor.decoupled or not self._tasks):
            work = self._host.take_work()
            if work is None:
                return
            batch = read_batch(self._host, *work)
            if batch is None:
                self._stop()
                return
            task = self.loop.create_task(executor.run_async(batch))
            # These names would hold on to the tensors until the next batch comes.
            del batch, work
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: Any) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(task.exception(), ServerGoneError):
            self._gone = task.exception()
            self._stop()
        elif self._host.inbox:
            # What has waited there may have been given up meanwhile.
            self._read()

    def _stop(self) -> None:
        self._ended = True
        self.loop.stop()


class SideLoop:
    """An asyncio loop in a thread of its own, for coroutines of a model that has no loop in the main thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
