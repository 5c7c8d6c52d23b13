"""Memory that the workers of one model map as well: what a front end receives into it, they use without a copy."""

from __future__ import annotations

import mmap
import os
import weakref
from bisect import insort
from collections import deque
from functools import partial
from typing import Any

import numpy as np

from .lent_memory import LentMemory, find_in
from .lent_outputs import LentOutputs
from .memory_release import memory_release
from .mmap import discard, sized
from .types import Array

ARENA_BYTES = 1 << 28
"""The size of an arena at most. Only what is in use takes memory."""


class Arena:
    """One piece of shared memory, from which blocks of bytes are allocated.

    It is mapped by the first allocation. The methods are for the event loop; blocks may be dropped in any thread.

    Args:
        size: in bytes; 0 for ``usable_bytes``.

    Attributes:
        size: in bytes.
        is_closed: whether ``close`` was called, or there is no such memory.
        outputs: finds outputs of the workers.
    """

    def __init__(self, size: int = 0) -> None:
        self.size = size or usable_bytes()
        self._memory: LentMemory | None = None
        self._adopted: list[LentMemory] = []
        self.outputs = LentOutputs(self._adopted)
        self.is_closed = False
        # Beginnings and ends, in their order, and never two that touch.
        self._free = [(0, self.size)]
        self._dropped: deque[tuple[int, int]] = deque()
        # Dropped blocks whose memory was given back.
        self._empty: deque[tuple[int, int]] = deque()
        self._blocks: dict[int, Any] = {}

    def allocate(self, size: int) -> Array | None:
        """A block of ``size`` bytes, a multiple of the page size, with undefined content; None if there is no room.

        It is free again when nothing refers to it any more.
        """
        memory = self._map() if self._memory is None else self._memory
        if memory is None or memory.bytes is None:
            return None
        self.collect()
        begin = self._take_room(size)
        if begin < 0:
            return None
        # A memoryview in between: numpy would otherwise let arrays refer to all of the memory instead of this block.
        block = np.frombuffer(memory.bytes.data[begin : begin + size], np.uint8)
        # Through the queue alone: the callback must not hold the arena.
        dropped = partial(_note, self._dropped, (begin, begin + size))
        self._blocks[begin] = weakref.ref(block, dropped)
        return block

    def adopt(self, memory: LentMemory) -> None:
        """Let workers use what lies in the memory of another process's arena for the same model, until it is closed."""
        self._adopted[:] = [adopted for adopted in self._adopted if adopted.bytes is not None]
        self._adopted.append(memory)

    def find(self, array: Array) -> tuple[LentMemory, int] | None:
        """The memory in which ``array`` lies, and where, in bytes from its beginning; None if it lies elsewhere."""
        if self._memory is not None and (offset := self._memory.offset_of(array)) >= 0:
            return self._memory, offset
        return find_in(self._adopted, array)

    def collect(self) -> None:
        """Give the memory of blocks that were dropped back to the system, and then make them free to be allocated.

        Large blocks may become free later, in a further call.
        """
        memory = None if self._memory is None else self._memory.bytes
        while self._dropped:
            begin, end = self._dropped.popleft()
            del self._blocks[begin]
            if memory is not None:
                discards = partial(_discard, memory[begin:end], self._empty, (begin, end))
                memory_release.release(end - begin, discards)
        while self._empty:
            insort(self._free, self._empty.popleft())
            self._free = _joined(self._free)

    @property
    def is_empty(self) -> bool:
        """Whether no block is in use, as of the last ``collect``."""
        return not self._blocks

    def close(self) -> None:
        """Allocate and find nothing any more. Blocks stay as long as they are used."""
        self.is_closed = True
        self._adopted.clear()
        if self._memory is not None:
            self._memory.close()

    def _take_room(self, size: int) -> int:
        """The beginning of ``size`` bytes that are free no more; -1 if no free range is as large."""
        for index, (begin, end) in enumerate(self._free):
            if end - begin >= size:
                # The first that fits, so that few pages are in use.
                self._free[index : index + 1] = [(begin + size, end)] if begin + size < end else []
                return begin
        return -1

    def _map(self) -> LentMemory | None:
        if self.is_closed:
            return None
        try:
            # No file in place of it where there is no such memory: the space of a file would have to be reserved.
            self._memory = LentMemory(sized(os.memfd_create("naiad-arena"), self.size), self.size)
        except (AttributeError, OSError):
            self.close()
        return self._memory


def usable_bytes() -> int:
    """The size of an arena in bytes: less than ``ARENA_BYTES`` where ``ulimit -v`` leaves little room for mappings."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError):
        return ARENA_BYTES
    if limit == resource.RLIM_INFINITY:
        return ARENA_BYTES
    return min(ARENA_BYTES, (limit >> 4) & -mmap.PAGESIZE)


def _discard(memory: Array, empty: deque[tuple[int, int]], block: tuple[int, int]) -> None:
    discard(memory)
    empty.append(block)


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
