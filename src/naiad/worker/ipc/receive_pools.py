"""The pools of a front end for what it receives: one of its own memory, and one of each arena."""

from __future__ import annotations

from typing import Callable, Optional

from .arena import Arena
from .buffer_pool import BufferPool
from .frames import SEGMENT_BYTES

FindArena = Callable[[], Optional[Arena]]
"""Returns the arena in which something is to be received; None for the process's own memory."""


class ReceivePools:
    """Pools for bodies and messages. The methods are for one thread.

    Attributes:
        own: the pool of the process's own memory.
    """

    def __init__(self) -> None:
        self.own = BufferPool()
        self._of_arenas: dict[Arena, BufferPool] = {}

    def choose(self, size: int, find_arena: FindArena | None) -> BufferPool:
        """The pool for a body or message of ``size`` bytes."""
        # Smaller tensors are copied into the frames for workers in any case.
        if find_arena is None or size < SEGMENT_BYTES or (arena := find_arena()) is None:
            return self.own
        found = self._of_arenas.get(arena)
        if found is None:
            found = self._of_arenas[arena] = BufferPool(arena.size, arena.allocate)
        return found

    def age(self, seconds: float) -> None:
        """Note that time has passed, as ``BufferPool.age``.

        The pool of an arena is dropped when nobody uses its blocks, or once the arena is closed.
        """
        self.own.age(seconds)
        for arena, pool in list(self._of_arenas.items()):
            pool.age(seconds)
            arena.collect()
            if arena.is_empty or arena.is_closed:
                del self._of_arenas[arena]
