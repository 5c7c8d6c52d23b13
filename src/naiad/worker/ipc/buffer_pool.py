"""A pool of memory blocks: fresh memory of some hundred kilobytes costs more in page faults than in copying.

The server receives large bodies into it, and a worker reads the tensors of clients' regions into it.
"""

from __future__ import annotations

import threading
from collections import deque
from sys import getrefcount
from time import monotonic
from typing import Callable

import numpy as np

from .types import Array

KEEP_S = 3
"""How long blocks that nobody needs stay in the pool, in seconds; the last of them up to twice as long."""
POOL_BYTES = 64 << 20
"""The most bytes that a pool holds."""
LOOKED_AT = 16
"""The most blocks in use that are checked for having come free before a new one is allocated."""
_PAGE_BYTES = 4096
_PAGES_ONLY_BELOW = 1 << 16


class _SizeClass:
    """The blocks of one size.

    Attributes:
        taken: blocks in use, the most recent last; some may have come free since.
        free: the other blocks, of which ``spare`` were not needed in the last ``age_s`` seconds.
    """

    __slots__ = ("age_s", "free", "spare", "taken")

    def __init__(self) -> None:
        self.taken: deque[Array] = deque()
        self.free: list[Array] = []
        self.spare = 0
        self.age_s = 0.0


class BufferPool:
    """Blocks of bytes, with at most ``limit_bytes`` in the pool.

    A block is free again when nothing refers to it any more, so nobody has to release it, and the last reference may be
    dropped in any thread. The methods are for one thread at a time: an owner that several threads use has a lock.

    Args:
        allocate: returns a new block of that size in bytes; None where it has no room, and the block is taken from the
            process's own memory.
        larger: how many times larger than needed a free block may be that is taken rather than a new one.

    Attributes:
        pooled_bytes: bytes of the blocks in the pool, whether in use or free.
    """

    def __init__(
        self,
        limit_bytes: int = POOL_BYTES,
        allocate: Callable[[int], Array | None] | None = None,
        larger: int = 1,
    ) -> None:
        self._limit = limit_bytes
        self._larger = larger
        self._allocate = allocate or _own_memory
        self._classes: dict[int, _SizeClass] = {}
        self.pooled_bytes = 0
        # Measured, not assumed: the count includes references of the call itself, which differ among Pythons. Below it
        # is taken in the same way, of a block that only the queue refers to.
        blocks: deque[Array] = deque([np.empty(1, np.uint8)])
        self._unused = getrefcount(blocks[-1])

    def take(self, size: int) -> Array:
        """A block of at least ``size`` bytes with undefined content, in use as long as any view of it lives.

        Raises:
            MemoryError: there is none.
        """
        # Up to the next page, or the next of eight steps between two powers of two: few sizes, and at most an eighth
        # of a block unused.
        if size < _PAGES_ONLY_BELOW:
            capacity = -(-size // _PAGE_BYTES) * _PAGE_BYTES or _PAGE_BYTES
        else:
            step = 1 << (size.bit_length() - 4)
            capacity = -(-size // step) * step
        found = self._classes.get(capacity)
        if found is None:
            found = self._classes[capacity] = _SizeClass()
        taken, free = found.taken, found.free
        # The last one first: it is still in the cache.
        if taken and getrefcount(taken[-1]) == self._unused:
            return taken[-1]
        if not free:
            self._collect(found, LOOKED_AT)
        if not free and self._larger > 1:
            found = self._with_larger(capacity) or found
            taken, free = found.taken, found.free
        if free:
            block = free.pop()
            found.spare = min(found.spare, len(free))
        else:
            # Past the limit a block never enters the pool: its last reference frees it.
            if self.pooled_bytes + capacity > self._limit or (made := self._allocate(capacity)) is None:
                return _own_memory(capacity)
            block = made
            self.pooled_bytes += capacity
        taken.append(block)
        return block

    def _with_larger(self, capacity: int) -> _SizeClass | None:
        """The smallest class above ``capacity`` that has a free block and is not too large."""
        for size in sorted(self._classes):
            if capacity < size <= self._larger * capacity:
                found = self._classes[size]
                self._collect(found, LOOKED_AT)
                if found.free:
                    return found
        return None

    def _collect(self, found: _SizeClass, most: int) -> None:
        """Look for blocks that have come free among the first ``most`` that were taken."""
        taken, free, unused = found.taken, found.free, self._unused
        for _ in range(min(len(taken), most)):
            # The oldest first; the next call continues behind those that were checked now.
            taken.rotate(-1)
            if getrefcount(taken[-1]) == unused:
                free.append(taken.pop())

    def age(self, seconds: float) -> None:
        """Note that time has passed: blocks that were free for ``KEEP_S`` are dropped."""
        for capacity, found in list(self._classes.items()):
            found.age_s += seconds
            if found.age_s < KEEP_S:
                continue
            free, taken = found.free, found.taken
            dropped = found.spare
            del free[:dropped]
            self._collect(found, len(taken))
            # A model may keep an input for ever: its block leaves the pool, and is not looked at time and again.
            self.pooled_bytes -= capacity * (dropped + len(taken))
            taken.clear()
            found.spare, found.age_s = len(free), 0.0
            if not free:
                del self._classes[capacity]


class LockedPool:
    """A pool from which one thread takes blocks while another one trims it, now and then."""

    def __init__(self, limit_bytes: int = POOL_BYTES, larger: int = 1) -> None:
        self._lock = threading.Lock()
        self._pool = BufferPool(limit_bytes, larger=larger)
        self._trimmed_s = monotonic()

    def take(self, size: int) -> Array:
        """The first ``size`` bytes of a block, which is in use as long as any array of them lives.

        Raises:
            MemoryError: there is none.
        """
        with self._lock:
            block = self._pool.take(size)
        return block[:size]

    def trim(self) -> None:
        """Drop memory that was not needed for a while."""
        with self._lock:
            now_s = monotonic()
            self._pool.age(now_s - self._trimmed_s)
            self._trimmed_s = now_s


def _own_memory(size: int) -> Array:
    return np.empty(size, np.uint8)
