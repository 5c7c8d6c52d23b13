"""Shared memory of clients, which the server passes on: read into memory of this process's own, and written.

Models never get the shared memory itself: its client may write to it at any time, and truncate its file. It is copied
through a guarded mapping where that is possible, else through the file.
"""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np

from .buffer_pool import LockedPool
from .client_file import ClientFile, RegionError
from .types import Array

MAPPED_BYTES = 1 << 30
"""The most bytes of clients' files that are mapped; beyond that the files are read and written."""

Part = Tuple[int, int, int]
"""A part of a region: its number, and offset and size in its file."""
Parts = Dict[str, Part]
"""Where outputs are wanted, by name."""


class Regions:
    """The regions that the server passed on, by number."""

    def __init__(self) -> None:
        self._memory = LockedPool()
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
        # Reused memory: fresh pages would cost more than the copy.
        data = self._memory.take(size)
        region.read_into(data, offset)
        return data

    def write(self, part: Part, name: str, data: Any, size: int) -> None:
        """Write the bytes of the output ``name`` to a part.

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
        """Drop memory and mappings that were not needed for a while. May be called in any thread."""
        self._memory.trim()
        # A copy: the reading thread adds and drops regions meanwhile.
        for region in list(self._open.values()):
            region.trim()

    def _may_map(self, size: int) -> bool:
        return size + sum(region.mapped_bytes for region in list(self._open.values())) <= MAPPED_BYTES

    def _find(self, number: int) -> ClientFile:
        region = self._open.get(number)
        if region is None:
            raise RegionError(f"The server named region {number}, which it never sent")
        return region


def _flat(data: Any) -> Array:
    """The bytes of a tensor as an array."""
    return data.reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
