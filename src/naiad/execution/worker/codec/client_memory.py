"""Shared memory of clients, as one worker knows it."""

from __future__ import annotations

import os
from collections import deque
from typing import Any
from weakref import ref

from naiad.shared_memory.region import Region, RegionPart
from naiad.worker.ipc.frames import DROP_REGION, FRAME, IN_REGION, PLACE, REGION

OutgoingFrame = tuple[bytes, int]
"""Bytes to send, and the descriptor that goes with the first of them; -1 for none."""


class WorkerRegions:
    """Sends a worker each region once, and has it close regions that nobody uses any more.

    Keeps no region open: the registry and the requests do.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[int, Any]] = {}
        # The last user of a region may drop it in any thread, which only appends to this queue.
        self._gone: deque[tuple[int, int]] = deque()
        self._last_number = 0

    def place(self, part: RegionPart, frames: list[OutgoingFrame]) -> bytes:
        """The place of a part as it travels; errors as ``find``."""
        return PLACE.pack(*self.find(part, frames))

    def find(self, part: RegionPart, frames: list[OutgoingFrame]) -> tuple[int, int, int, int]:
        """The place of a part; region 0 for memory that is no file, which cannot be passed to a worker.

        Raises:
            OSError: too many files are open.
        """
        region, offset, size = part
        if region.descriptor < 0:
            return 0, IN_REGION, 0, 0
        found = self._numbers.get(id(region))
        number = found[0] if found is not None and found[1]() is region else self._introduce(region, frames)
        return number, IN_REGION, region.start + offset, size

    def _introduce(self, region: Region, frames: list[OutgoingFrame]) -> int:
        # First, so that the worker has no more regions open than are in use.
        self.drop(frames)
        descriptor = os.dup(region.descriptor)
        number = self._last_number = self._last_number + 1
        key = id(region)
        gone = self._gone
        # Weak, so that a region is closed as soon as its registry and its requests drop it.
        self._numbers[key] = number, ref(region, lambda _: gone.append((key, number)))
        name = region.name.encode("utf-8", "replace")
        # Whoever sends the descriptor closes it: the region may be closed before that.
        frames.append((FRAME.pack(REGION, len(name), number) + name, descriptor))
        return number

    def drop(self, frames: list[OutgoingFrame]) -> None:
        """Add the frames that have the worker close regions that are gone."""
        while self._gone:
            key, number = self._gone.popleft()
            # Another region may have come to lie where that one was.
            if (found := self._numbers.get(key)) is not None and found[0] == number:
                del self._numbers[key]
            frames.append((FRAME.pack(DROP_REGION, 0, number), -1))
