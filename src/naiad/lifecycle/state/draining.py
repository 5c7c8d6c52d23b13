"""Draining versions: each responds to the requests that it accepted, and is then closed in a thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Final

from naiad.lifecycle.state.load_threads import in_thread
from naiad.lifecycle.state.model_table import ModelEntry, VersionEntry
from naiad.lifecycle.state.states import ModelState
from naiad.processes.freed_memory import returning_freed_memory

if TYPE_CHECKING:
    from naiad.execution.model.interface import LoadedVersion
    from naiad.repository.local.temporary_folder import ModelFolder

logger = logging.getLogger("naiad")

CLOSING_S: Final = 1.0
"""The least time for a model to close after the exit timeout."""


class Draining:
    """The versions that are draining. Used on the event loop only.

    Args:
        ended: called after each of them.

    Attributes:
        models: the versions that have not ended.
    """

    def __init__(self, ended: Callable[[], None] = lambda: None) -> None:
        self._ended = ended
        self.models: set[LoadedVersion] = set()
        self._tasks: set[asyncio.Task[bool]] = set()
        self._hurry = asyncio.Event()
        self._deadline: float | None = None

    def begin(self, entry: ModelEntry, version: VersionEntry) -> None:
        """Have a version that is ready refuse new requests from now on, and close it after its last response."""
        model = version.model
        version.become(ModelState.UNLOADING)
        # At once: nothing may find the model by its entry while it drains.
        version.model = version.config = None
        if model is None:
            version.become(ModelState.UNAVAILABLE, version.reason_gone)
            return
        model.stop_accepting()
        self.models.add(model)
        entry.unloading += 1
        task = asyncio.get_running_loop().create_task(self._retire(entry, version, model))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def retiring(self) -> frozenset[asyncio.Task[bool]]:
        """A task for each version, which ends once it is closed."""
        return frozenset(self._tasks)

    async def finish(self, timeout: float) -> bool:
        """Wait for all versions; False when some still had open requests after ``timeout`` seconds, and were closed."""
        self._deadline = monotonic() + timeout
        tasks = set(self._tasks)
        timer = asyncio.get_running_loop().call_later(timeout, self._hurry.set)
        if not tasks:
            timer.cancel()
            return True
        done, late = await asyncio.wait(tasks, timeout=timeout + CLOSING_S)
        timer.cancel()
        return not late and all(task.result() for task in done)

    async def _retire(self, entry: ModelEntry, version: VersionEntry, model: LoadedVersion) -> bool:
        is_drained = await self._drain(model)
        if version.asker is not None:
            version.asker.is_closing = True
        folder, version.folder = version.folder, None
        is_closed = await self._close(model, folder)
        model.detach()
        self.models.discard(model)
        entry.unloading -= 1
        # After the counts above, which whoever it wakes reads.
        self._ended()
        # A load that was tried meanwhile may have left a reason why there is no other.
        version.become(ModelState.UNAVAILABLE, str(entry.problem) if entry.problem is not None else version.reason_gone)
        logger.info("successfully unloaded '%s' version %d", entry.name, version.version)
        return is_drained and is_closed

    async def _drain(self, model: LoadedVersion) -> bool:
        """Wait until a model has responded to all that it accepted; False when the exit timeout is over before."""
        # Checked again: a request may come between the turn of the loop that drained it and the one that ends the wait.
        while not model.is_drained:
            drained = asyncio.Event()
            model.when_drained(drained.set)
            waits = [asyncio.ensure_future(event.wait()) for event in (drained, self._hurry)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if not drained.is_set():
                return False
        return True

    async def _close(self, model: LoadedVersion, folder: ModelFolder | None) -> bool:
        left_s = None if self._deadline is None else max(CLOSING_S, self._deadline - monotonic())
        try:
            return await in_thread(_end, model, folder, left_s)
        except Exception:
            logger.exception("model '%s' version %d could not be closed", model.name, model.version)
            return False


def _end(model: LoadedVersion, folder: ModelFolder | None, left_s: float | None) -> bool:
    """Close a model and release the files that it came from; False when it did not end in ``left_s`` seconds."""
    if folder is not None:
        # Repository agents hear of the unload before it begins, and again once the files are released.
        folder.leave()
    # Where the server goes on, what the model had would stay with the process until the next load.
    with returning_freed_memory() if left_s is None else nullcontext():
        try:
            return model.close(left_s)
        finally:
            if folder is not None:
                folder.release()
