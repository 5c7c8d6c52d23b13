"""A request body of declared length that arrives after its head, received straight into its own memory."""

from __future__ import annotations

from typing import Final

from naiad.worker.ipc.buffer_pool import BufferPool

EARNED_BYTES: Final = 1 << 20
"""How much of a body must have arrived before memory for all of its declared length is taken."""

_ALIGNMENT: Final = 64


class SizedBody:
    """Memory for ``length`` bytes that begins with ``data``, the part that came along with the head.

    The memory is not zeroed, and mapped only where bytes arrive: a declared length alone costs next to nothing. It is
    aligned so that the byte at ``aligned_at``, where the tensors begin after a JSON part, starts a cache line. Tensors
    can then be passed to a model without a copy.

    Attributes:
        have: bytes received so far.
        target: the memory for the next bytes; never empty before the body is complete.

    Raises:
        MemoryError: memory cannot be allocated; ``advance`` raises it as well.
    """

    __slots__ = ("_aligned_at", "_length", "_pool", "have", "memory", "target")

    def __init__(self, pool: BufferPool, length: int, data: memoryview, aligned_at: int = 0) -> None:
        self._pool = pool
        self._length = length
        self._aligned_at = aligned_at
        self._move(min(length, max(EARNED_BYTES, len(data))), data)

    def advance(self, nbytes: int) -> bool:
        """Count ``nbytes`` written to ``target``; True once the body is complete in ``memory``."""
        self.have += nbytes
        if self.have < len(self.memory):
            self.target = self.memory[self.have :]
            return False
        # At most ``EARNED_BYTES`` are copied, once.
        if self.have < self._length:
            self._move(self._length, self.memory)
            return False
        return True

    def _move(self, capacity: int, data: memoryview) -> None:
        room = self._pool.take(capacity + _ALIGNMENT)
        begin = -(room.__array_interface__["data"][0] + self._aligned_at) % _ALIGNMENT
        memory = room[begin : begin + capacity].data
        memory[: len(data)] = data
        self.memory = memory
        self.have = len(data)
        self.target = memory[len(data) :]
