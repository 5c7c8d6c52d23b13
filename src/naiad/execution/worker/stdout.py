"""Reading what a child prints, beside everything else that the loop does."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from naiad.execution.worker.process import WorkerProcess

PAUSES: Final = 4.0
"""After each reading comes a pause so many times as long: a child that prints without end takes a fifth of the loop at
most. It has to wait meanwhile, as for any slow terminal, and no line is lost."""
_SHORT_S: Final = 0.0002


class WorkerOutput:
    """Takes the lines of one child in, until it is closed or the child has closed its output."""

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
            self.close()
            return
        if (took := monotonic() - begun) > _SHORT_S:
            self._loop.remove_reader(self._process.output)
            self._timer = self._loop.call_later(PAUSES * took, self._listen)
