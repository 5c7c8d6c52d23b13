"""Shared memory of clients, which the server passes on: read into memory of this process's own, and written.

Models never see it itself: its client may write to it at any time, and truncate its file. It is copied through a
guarded mapping where there can be one, else through the file.
"""

from __future__ import annotations

import mmap
import weakref
from time import monotonic
from typing import Any, Dict, Tuple

import numpy as np

from .arrays import Array
from .client_files import ClientFile, RegionError

KEEP_FREE_S = 2.0
"""How long memory that nobody needs is kept."""
POOL_BYTES = 64 << 20
"""So much is kept at most."""
MAPPED_BYTES = 1 << 30
"""Files of clients that are mapped have so many bytes at most, all together; what is more is read and written."""

Part = Tuple[int, int, int]
"""A part of a region: its number, and offset and size in its file."""
Parts = Dict[str, Part]
"""Where outputs are wanted, by name."""


class Regions:
    """The regions that the server passed on, by number."""

    def __init__(self) -> None:
        self.memory = Memory()
        self._open: dict[int, ClientFile] = {}

    def add(self, number: int, name: str, descriptor: int) -> None:
        """Take a region over, and with it the descriptor."""
        self._open[number] = ClientFile(name, descriptor, self._may_map)

    def drop(self, number: int) -> None:
        """Forget a region."""
        self._open.pop(number, None)

    def read(self, part: Part) -> Array:
        """The bytes of a part, in memory of their own.

        Raises:
            RegionError: the file is not that long any more.
        """
        number, offset, size = part
        region = self._find(number)
        data = self.memory.take(size)
        region.read_into(data, offset)
        return data

    def write(self, part: Part, name: str, data: Any, size: int) -> None:
        """Put the bytes of the output ``name`` to a part.

        Raises:
            RegionError: they do not fit, or the file is not that long any more.
        """
        number, offset, room = part
        if size > room:
            raise RegionError(
                f"shared memory size specified with the request for output '{name}' ({room} bytes) should be at least "
                f"{size} bytes to hold the results"
            )
        region = self._find(number)
        if size:
            region.write(_flat(data), offset)

    def trim(self) -> None:
        """Let go of memory and of mappings that were not needed for a while. May be called in any thread."""
        self.memory.trim()
        for region in list(self._open.values()):
            region.trim()

    def _may_map(self, size: int) -> bool:
        return size + sum(region.mapped_bytes for region in list(self._open.values())) <= MAPPED_BYTES

    def _find(self, number: int) -> ClientFile:
        region = self._open.get(number)
        if region is None:
            raise RegionError(f"The server named region {number}, which it never sent")
        return region


class Memory:
    """Memory that is used again: fresh memory costs more in page faults than in copying.

    What was taken comes back by itself when the last array that refers to it is gone.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[tuple[Array, float]]] = {}
        self._taken: dict[int, Any] = {}

    def take(self, size: int) -> Array:
        """So many bytes, their content undefined."""
        capacity = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        free = self._free.get(capacity)
        block: Array | None = None
        if free:
            try:
                block = free.pop()[0]
            except IndexError:
                pass  # Another thread was quicker.
        if block is None:
            block = np.empty(capacity, np.uint8)
        # memoryview in between: numpy would otherwise let arrays refer to the whole block instead of this one.
        data: Array = np.frombuffer(block.data[:size], np.uint8)
        key = id(data)
        self._taken[key] = weakref.ref(data, lambda _: self._give_back(key, block))
        return data

    def trim(self) -> None:
        """Let go of what was not needed for a while."""
        limit = monotonic() - KEEP_FREE_S
        for capacity in list(self._free):
            free = self._free[capacity]
            while free and free[0][1] < limit:
                try:
                    free.pop(0)
                except IndexError:
                    break

    def _give_back(self, key: int, block: Array) -> None:
        self._taken.pop(key, None)
        kept = sum(capacity * len(free) for capacity, free in list(self._free.items()))
        if kept + block.nbytes <= POOL_BYTES:
            self._free.setdefault(block.nbytes, []).append((block, monotonic()))


def _flat(data: Any) -> Array:
    """The bytes of a tensor as an array."""
    return data.reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
