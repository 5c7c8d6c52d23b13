"""Shared memory as one process maps it that lends tensors in it to others: an arena, or a segment with outputs."""

from __future__ import annotations

import os
from typing import Iterable

from .mmap import mapped
from .types import Array


class LentMemory:
    """Shared memory in which tensors lie that other processes use in place.

    Args:
        descriptor: of the memory; closed by ``close``, and when this raises.
        size: in bytes.

    Attributes:
        address: where this process maps it.
        bytes: all of it; None once it is closed.
        size: in bytes.

    Raises:
        OSError: it cannot be mapped.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor
        try:
            self.bytes: Array | None = mapped(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        self.address: int = self.bytes.__array_interface__["data"][0]

    def offset_of(self, array: Array) -> int:
        """Where ``array`` begins, in bytes from the beginning; -1 if it lies elsewhere, or this is closed."""
        offset: int = array.__array_interface__["data"][0] - self.address
        return offset if 0 <= offset < self.size and self.bytes is not None else -1

    def descriptor(self) -> int:
        """A descriptor of the memory for another process; the caller closes it.

        Raises:
            OSError: there is none.
        """
        return os.dup(self._descriptor)

    def close(self) -> None:
        """Lend nothing any more. Arrays that refer to it keep it mapped. May be called twice."""
        self.bytes = None
        self.close_descriptor()

    def close_descriptor(self) -> None:
        """Lend it to no further process. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def find_in(memories: Iterable[LentMemory], array: Array) -> tuple[LentMemory, int] | None:
    """The one of ``memories`` in which ``array`` lies, and where, in bytes from its beginning; None if in none."""
    for memory in memories:
        if (offset := memory.offset_of(array)) >= 0:
            return memory, offset
    return None
