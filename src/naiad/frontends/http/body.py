"""A request body of declared length that arrives after its head, received straight into its own memory."""

from __future__ import annotations

from typing import Final

import numpy as np

EARNED_BYTES: Final = 1 << 20
"""How much of a body must have arrived before memory for all of its declared length is taken."""


class SizedBody:
    """Memory for ``length`` bytes that begins with ``data``, the part that came along with the head.

    The memory is not zeroed, and mapped only where bytes arrive: a declared length alone costs next to nothing.

    Attributes:
        have: bytes received so far.
        target: where the next bytes go; never empty before the body is whole.

    Raises:
        MemoryError: there is no room, also by ``advance``.
    """

    __slots__ = ("_length", "have", "memory", "target")

    def __init__(self, length: int, data: memoryview) -> None:
        self._length = length
        self._move(min(length, max(EARNED_BYTES, len(data))), data)

    def advance(self, nbytes: int) -> bool:
        """Count ``nbytes`` written to ``target``; True once the body is whole, which then lies in ``memory``."""
        self.have += nbytes
        if self.have < len(self.memory):
            self.target = self.memory[self.have :]
            return False
        if self.have < self._length:
            self._move(self._length, self.memory)
            return False
        return True

    def _move(self, capacity: int, data: memoryview) -> None:
        memory = np.empty(capacity, np.uint8).data
        memory[: len(data)] = data
        self.memory = memory
        self.have = len(data)
        self.target = memory[len(data) :]
