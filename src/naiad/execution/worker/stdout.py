"""The output of a worker, read on the event loop without keeping it from other work."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from naiad.execution.worker.process import WorkerProcess

PAUSES: Final = 4.0
"""The pause after each reading, in multiples of the time that it took: a worker that prints without end takes a fifth
of the loop at most. It waits meanwhile, as for any slow terminal, and no line is lost."""
_SHORT_S: Final = 0.0002


class WorkerOutput:
    """Logs the lines of one worker until this or the worker's output is closed."""

    def __init__(self, process: WorkerProcess, loop: asyncio.AbstractEventLoop) -> None:
        self._process = process
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = not process.is_silent
        self._listen()

    def close(self) -> None:
        """Read no more. May be called twice."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._process.output)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _listen(self) -> None:
        self._timer = None
        if self._is_open:
            self._loop.add_reader(self._process.output, self._read)

    def _read(self) -> None:
        begun = monotonic()
        self._process.take_output()
        if self._process.is_silent:
            # A closed pipe stays readable, and the loop would spin on it.
            self.close()
            return
        # Nearly all readings are short, and do not touch the loop's readers.
        if (took := monotonic() - begun) > _SHORT_S:
            self._loop.remove_reader(self._process.output)
            self._timer = self._loop.call_later(PAUSES * took, self._listen)
