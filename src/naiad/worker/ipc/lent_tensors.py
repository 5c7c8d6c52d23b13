"""Tensors that another process uses where they are, without a copy."""

from __future__ import annotations

from typing import Callable, Optional, Protocol, Sequence, Tuple

from .frames import ARENA_SHIFT, LENT
from .lent_memory import LentMemory
from .types import Array

Introduce = Callable[[int, int, int], object]
"""Introduces a memory to the other process: its number, a descriptor, which is now the callee's, and its size."""
Lent = Optional[Tuple[int, int]]
"""The number of a lent tensor, and its offset with the number of its memory above ``ARENA_SHIFT``."""


class MemoryFinder(Protocol):
    """Finds arrays in memory that can be lent: an ``Arena``, or ``LentOutputs``."""

    def find(self, array: Array) -> tuple[LentMemory, int] | None:
        """The memory in which ``array`` lies, and where, in bytes from its beginning; None if it lies elsewhere."""


class LentTensors:
    """The tensors that one other process uses now, in memory of this one."""

    def __init__(self) -> None:
        self._memories: dict[LentMemory, int] = {}
        self._last_memory = 0
        # A block of an arena is not used again as long as anything refers to it.
        self._held: dict[int, Array] = {}
        self._free_numbers: list[int] = []

    def lend(self, data: Array, finder: MemoryFinder, introduce: Introduce) -> Lent:
        """Lend bytes until the other process releases their number; None if ``finder`` does not know where they lie."""
        found = finder.find(data)
        if found is None:
            return None
        memory, offset = found
        number = self._memories.get(memory)
        if number is None:
            try:
                descriptor = memory.descriptor()
            except OSError:
                # The process has no descriptor left: a copy needs none.
                return None
            self._last_memory += 1
            number = self._memories[memory] = self._last_memory
            introduce(number, descriptor, memory.size)
        use = self._free_numbers.pop() if self._free_numbers else LENT + len(self._held)
        self._held[use] = data
        return use, number << ARENA_SHIFT | offset

    def open(self, number: int, offset: int, size: int) -> Array:
        """A part of a tensor that the other process has not released.

        Raises:
            ValueError: there is no such part.
        """
        held = self._held.get(number)
        if held is None or offset + size > held.size:
            raise ValueError(f"{size} bytes at {offset} of the lent tensor {number}, which is not lent or not as long")
        return held[offset : offset + size]

    def release(self, numbers: Sequence[int]) -> None:
        """Note that the other process does not use these tensors any more; numbers of segments are ignored."""
        for number in numbers:
            if self._held.pop(number, None) is not None:
                self._free_numbers.append(number)

    @property
    def has_memories(self) -> bool:
        """Whether the other process maps any memory."""
        return bool(self._memories)

    def forget_closed(self) -> list[int]:
        """Forget memories that were closed; the numbers of those that the other process is to unmap."""
        closed = [memory for memory in self._memories if memory.bytes is None]
        return [self._memories.pop(memory) for memory in closed]
