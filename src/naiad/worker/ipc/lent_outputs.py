"""The segments of a model's workers, kept so that another process can use the outputs in them without a copy."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Sequence

from .lent_memory import LentMemory, find_in
from .types import Array

MAX_SEGMENTS = 256
"""The most segments that are kept: each has an open descriptor. Outputs in others are copied."""


class LentOutputs:
    """The segments in which outputs of one model lie. Belongs to the event loop.

    Args:
        arenas: of other processes, for the same model: an output may also lie in an input.

    Attributes:
        is_on: whether further segments are to be kept.
    """

    def __init__(self, arenas: Sequence[LentMemory]) -> None:
        self.is_on = False
        self._arenas = arenas
        self._begins: list[int] = []
        self._memories: dict[int, LentMemory] = {}

    @property
    def has_room(self) -> bool:
        """Whether one more segment is to be kept."""
        return self.is_on and len(self._begins) < MAX_SEGMENTS

    def add(self, memory: LentMemory) -> None:
        """Keep a segment that a worker has introduced."""
        insort(self._begins, memory.address)
        self._memories[memory.address] = memory

    def drop(self, memory: LentMemory) -> None:
        """Close a segment that its worker has dropped, or that of a worker that is gone."""
        self._begins.remove(memory.address)
        del self._memories[memory.address]
        memory.close()

    def find(self, array: Array) -> tuple[LentMemory, int] | None:
        """Find the memory in which ``array`` lies, as ``Arena.find``."""
        at = bisect_right(self._begins, array.__array_interface__["data"][0])
        memories = [self._memories[self._begins[at - 1]], *self._arenas] if at else self._arenas
        return find_in(memories, array)
