"""A pool of memory blocks: fresh memory costs more in page faults than in copying."""

from __future__ import annotations

import mmap
import sys
import threading
from collections import deque
from time import monotonic

import numpy as np

from .types import Array

KEEP_FREE_S = 2.0
"""How long free blocks stay in the pool."""
POOL_BYTES = 64 << 20
"""The most bytes that the pool holds."""
LOOKED_AT = 16
"""The most blocks in use that are checked for having come free before a new one is allocated."""


class _FreeList:
    """The blocks of one size.

    Attributes:
        taken: blocks in use, the most recent last; some may have come free since.
        free: the other blocks, of which ``spare`` were not needed since ``since_s``.
    """

    __slots__ = ("free", "since_s", "spare", "taken")

    def __init__(self) -> None:
        self.taken: deque[Array] = deque()
        self.free: list[Array] = []
        self.spare = 0
        self.since_s = monotonic()


class BlockPool:
    """Blocks of bytes. A block is free again when nothing refers to it any more, so nobody has to release it.

    Any thread may drop its references, and call ``trim``, at any time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._classes: dict[int, _FreeList] = {}
        self._pooled_bytes = 0
        # Measured, not assumed: the count includes references of the call itself, which differ among Pythons.
        self._unused = _references_to(deque([np.empty(1, np.uint8)]))

    def take(self, size: int) -> Array:
        """A block of ``size`` bytes with undefined content."""
        capacity = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE or mmap.PAGESIZE
        with self._lock:
            block = self._find(capacity)
        # The part refers to its block, which therefore stays in use as long as any array of the part lives.
        return block if size == capacity else block[:size]

    def _find(self, capacity: int) -> Array:
        found = self._classes.get(capacity)
        if found is None:
            found = self._classes[capacity] = _FreeList()
        taken, free = found.taken, found.free
        # The last one first: it is still in the cache.
        if taken and _references_to(taken) == self._unused:
            return taken[-1]
        if not free:
            self._collect(found, LOOKED_AT)
        if free:
            block = free.pop()
            found.spare = min(found.spare, len(free))
        else:
            block = np.empty(capacity, np.uint8)
            # Past the limit a block never enters the pool: its last reference frees it.
            if self._pooled_bytes + capacity > POOL_BYTES:
                return block
            self._pooled_bytes += capacity
        taken.append(block)
        return block

    def _collect(self, found: _FreeList, most: int) -> None:
        """Look for blocks that have come free among the first ``most`` that were taken."""
        taken = found.taken
        for _ in range(min(len(taken), most)):
            # The oldest first; the next call continues behind those that were checked now.
            taken.rotate(-1)
            if _references_to(taken) == self._unused:
                found.free.append(taken.pop())

    def trim(self) -> None:
        """Drop blocks that were free for a while."""
        now = monotonic()
        with self._lock:
            for capacity, found in list(self._classes.items()):
                if now - found.since_s < KEEP_FREE_S:
                    continue
                free, taken = found.free, found.taken
                dropped = found.spare
                del free[:dropped]
                self._collect(found, len(taken))
                # A model may keep an input for ever: its block leaves the pool, and is not looked at time and again.
                self._pooled_bytes -= capacity * (dropped + len(taken))
                taken.clear()
                found.spare, found.since_s = len(free), now
                if not free:
                    del self._classes[capacity]


def _references_to(taken: deque[Array]) -> int:
    """The references to the last block as counted here, to be compared with a block that only the queue refers to."""
    return sys.getrefcount(taken[-1])
