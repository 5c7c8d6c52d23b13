"""The batches on their way into the thread of an instance."""

from __future__ import annotations

from enum import Enum
from queue import SimpleQueue
from typing import Final

from naiad.execution.batching.batch import Batch

_Mark = Enum("_Mark", ["AHEAD"])
_AHEAD: Final = _Mark.AHEAD


class BatchQueue:
    """Batches for one thread, in their order. The event loop puts them in, the thread takes them out."""

    __slots__ = ("_ahead", "_queue")

    def __init__(self) -> None:
        self._queue: SimpleQueue[Batch | _Mark | None] = SimpleQueue()
        # A batch that was put ahead; the queue has a mark for it. Each side takes it out with one atomic call.
        self._ahead: list[Batch] = []

    def put(self, batch: Batch) -> None:
        """Add a batch."""
        self._queue.put(batch)

    def put_ahead(self, batch: Batch) -> None:
        """Add a batch that can be dropped until the thread takes it."""
        self._ahead.append(batch)
        self._queue.put(_AHEAD)

    def drop(self, batch: Batch) -> bool:
        """Take out a batch that was put ahead; False when the thread has it."""
        try:
            self._ahead.remove(batch)
        except ValueError:
            return False
        return True

    def end(self) -> None:
        """Let ``get`` return None behind the batches that are there."""
        self._queue.put(None)

    def get(self) -> Batch | None:
        """The next batch, as soon as there is one; None at the end."""
        while (batch := self._queue.get()) is _AHEAD:
            try:
                return self._ahead.pop()
            except IndexError:
                # It was dropped.
                continue
        return batch
