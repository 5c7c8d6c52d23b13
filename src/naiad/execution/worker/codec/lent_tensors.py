"""Tensors that were received into the arena of their model: a worker gets them where they are, without a copy."""

from __future__ import annotations

from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.request import Array
from naiad.worker.ipc.arena import Arena
from naiad.worker.ipc.frames import ARENA, FRAME, LENT, PLACE


class LentTensors:
    """The tensors in an arena that one worker uses now; none where there is no arena."""

    def __init__(self, arena: Arena | None) -> None:
        self._arena = arena
        self._is_introduced = False
        # A block of the arena is not used again as long as anything refers to it.
        self._held: dict[int, Array] = {}
        self._free_numbers: list[int] = []

    def lend(self, data: Array, frames: list[OutgoingFrame]) -> tuple[int, bytes] | None:
        """The number under which the worker uses ``data`` until it releases it, and its place; None if it is not in the
        arena.

        The frame that introduces the arena is added when it is due.
        """
        arena = self._arena
        if arena is None or (offset := arena.offset_of(data)) < 0:
            return None
        if not self._is_introduced:
            try:
                descriptor = arena.descriptor()
            except OSError:
                # The process has no descriptor left: a copy needs none.
                return None
            self._is_introduced = True
            # Whoever sends the descriptor closes it.
            frames.append((FRAME.pack(ARENA, 8, 0) + arena.size.to_bytes(8, "little"), descriptor))
        number = self._free_numbers.pop() if self._free_numbers else LENT + len(self._held)
        self._held[number] = data
        return number, PLACE.pack(number, 0, offset, data.size)

    def release(self, number: int) -> None:
        """Note that the worker does not use a tensor any more."""
        if self._held.pop(number, None) is not None:
            self._free_numbers.append(number)
