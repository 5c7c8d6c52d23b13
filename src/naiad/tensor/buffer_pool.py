"""A pool of memory for large bodies.

A fresh block of some hundred kilobytes costs more in page faults than in copying. A block of the pool is free again
when nothing refers to it any more, so nobody has to release it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

POOL_BYTES: Final = 64 << 20
KEEP_SECONDS: Final = 5
_LOOKED_AT: Final = 8

Block = np.ndarray[Any, np.dtype[np.uint8]]


class _SizeClass:
    """The blocks of one size, and for how many seconds none was taken."""

    __slots__ = ("_cursor", "blocks", "unused_s")

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.unused_s = 0
        self._cursor = 0

    def candidates(self) -> Iterator[int]:
        """Indices of blocks to check: always the first few, which are warm in the cache, and some others in turn."""
        count = len(self.blocks)
        yield from range(min(count, _LOOKED_AT))
        for _ in range(min(count - _LOOKED_AT, _LOOKED_AT)):
            self._cursor = (self._cursor + 1) % count
            yield self._cursor


class BufferPool:
    """Blocks of bytes, with at most ``limit_bytes`` in the pool. Used by one thread, though blocks may die in any."""

    def __init__(self, limit_bytes: int = POOL_BYTES) -> None:
        self._limit = limit_bytes
        self._classes: dict[int, _SizeClass] = {}
        self.pooled_bytes = 0
        # Measured, not assumed: the count includes references of the call itself, which differ among Pythons.
        self._free = _references_to([np.empty(1, np.uint8)], 0)

    def take(self, size: int) -> Block:
        """A block of at least ``size`` bytes, its content undefined; it is free again when all views of it are gone.

        Raises:
            MemoryError: there is none.
        """
        size = _rounded(size)
        found = self._classes.get(size)
        if found is None:
            found = self._classes[size] = _SizeClass()
        found.unused_s = 0
        blocks = found.blocks
        for index in found.candidates():
            if _references_to(blocks, index) == self._free:
                return blocks[index]
        block = np.empty(size, np.uint8)
        # Past the limit a block never enters the pool: its last reference frees it.
        if self.pooled_bytes + size <= self._limit:
            self.pooled_bytes += size
            blocks.append(block)
        return block

    def age(self, seconds: int) -> None:
        """Note that time has passed: blocks of sizes that nobody took for ``KEEP_SECONDS`` are dropped."""
        for size, found in list(self._classes.items()):
            found.unused_s += seconds
            if found.unused_s >= KEEP_SECONDS:
                self.pooled_bytes -= size * len(found.blocks)
                # Blocks that are in use live on, outside the pool.
                del self._classes[size]


def _references_to(blocks: list[Block], index: int) -> int:
    """The references to a block as counted here, to be compared with a block that only the list refers to."""
    return sys.getrefcount(blocks[index])


def _rounded(size: int) -> int:
    """Up to the next of eight steps between two powers of two: few sizes, and at most an eighth of a block unused."""
    step = max(4096, 1 << max(size.bit_length() - 4, 0))
    return -(-size // step) * step
