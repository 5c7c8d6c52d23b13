"""Memory that the workers of one model map as well: what a front end receives into it, they use without a copy."""

from __future__ import annotations

import os
import weakref
from bisect import insort
from collections import deque
from functools import partial
from typing import Any

import numpy as np

from .mmap import discard, mapped
from .types import Array

ARENA_BYTES = 1 << 28
"""The size of an arena. Only what is in use takes memory."""


class Arena:
    """One piece of shared memory, from which blocks of bytes are allocated.

    It is mapped by the first allocation. The methods are for the event loop; blocks may be dropped in any thread.

    Attributes:
        size: in bytes.
    """

    def __init__(self, size: int = ARENA_BYTES) -> None:
        self.size = size
        self._descriptor = -1
        self._memory: Array | None = None
        self._address = 0
        self._is_over = False
        # Beginnings and ends, in their order, and never two that touch.
        self._free = [(0, size)]
        self._dropped: deque[tuple[int, int]] = deque()
        self._blocks: dict[int, Any] = {}

    def allocate(self, size: int) -> Array | None:
        """A block of ``size`` bytes, a multiple of the page size, with undefined content; None if there is no room.

        It is free again when nothing refers to it any more.
        """
        memory = self._map() if self._memory is None else self._memory
        if memory is None:
            return None
        self.collect()
        begin = self._take_room(size)
        if begin < 0:
            return None
        # A memoryview in between: numpy would otherwise let arrays refer to all of the memory instead of this block.
        block = np.frombuffer(memory.data[begin : begin + size], np.uint8)
        # Through the queue alone: the callback must not hold the arena.
        dropped = partial(_note, self._dropped, (begin, begin + size))
        self._blocks[begin] = weakref.ref(block, dropped)
        return block

    def offset_of(self, array: Array) -> int:
        """Where ``array`` begins, in bytes from the beginning of the arena; -1 if it lies elsewhere."""
        if self._memory is None:
            return -1
        offset: int = array.__array_interface__["data"][0] - self._address
        return offset if 0 <= offset < self.size else -1

    def collect(self) -> None:
        """Make blocks that were dropped free to be allocated, and give their memory back to the system."""
        while self._dropped:
            begin, end = self._dropped.popleft()
            del self._blocks[begin]
            if self._memory is None:
                continue
            discard(self._memory[begin:end])
            insort(self._free, (begin, end))
            self._free = _joined(self._free)

    @property
    def is_empty(self) -> bool:
        """Whether no block is in use, as of the last ``collect``."""
        return not self._blocks

    def descriptor(self) -> int:
        """A descriptor of the memory for a worker; the caller closes it.

        Raises:
            OSError: there is none.
        """
        return os.dup(self._descriptor)

    def close(self) -> None:
        """Allocate nothing any more. Blocks stay as long as they are used."""
        self._is_over = True
        self._memory = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take_room(self, size: int) -> int:
        """The beginning of ``size`` bytes that are free no more; -1 if no free range is as large."""
        for index, (begin, end) in enumerate(self._free):
            if end - begin >= size:
                # The first that fits, so that few pages are in use.
                self._free[index : index + 1] = [(begin + size, end)] if begin + size < end else []
                return begin
        return -1

    def _map(self) -> Array | None:
        if self._is_over:
            return None
        try:
            # No file in place of it where there is no such memory: the space of a file would have to be reserved.
            self._descriptor = os.memfd_create("naiad-arena")
            os.ftruncate(self._descriptor, self.size)
            self._memory = mapped(self._descriptor, self.size)
        except (AttributeError, OSError):
            self.close()
            return None
        self._address = self._memory.__array_interface__["data"][0]
        return self._memory


def _note(dropped: deque[tuple[int, int]], block: tuple[int, int], _: object) -> None:
    dropped.append(block)


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same memory with ranges that touch in one."""
    found: list[tuple[int, int]] = []
    for begin, end in ranges:
        if found and found[-1][1] == begin:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return found
