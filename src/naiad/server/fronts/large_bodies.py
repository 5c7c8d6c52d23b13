"""The bounds of a front-end process on the large bodies that it hands over.

They lie in shared memory, so the socket to an engine that is busy takes any number of them.
"""

from __future__ import annotations

from typing import Protocol

from naiad.scheduling.admission import RequestBudget
from naiad.server.fronts.link import SEGMENT_BYTES


class Holder(Protocol):
    """A request with the engine; ``held_bytes`` is what it counts for, 0 where its body is small."""

    held_bytes: int


class LargeBodies:
    """Counts them against the bounds until their responses. Small ones count nothing and are never refused."""

    __slots__ = ("_budget",)

    def __init__(self, budget: RequestBudget) -> None:
        self._budget = budget

    def check(self, size: int) -> None:
        """Check that there is room for one more.

        Raises:
            QueueFullError: there is not.
        """
        self._budget.check(size)

    def take(self, size: int) -> int:
        """Count a body; returns its ``held_bytes``. Errors as ``check``."""
        if size < SEGMENT_BYTES:
            return 0
        self._budget.check(size)
        self._budget.take(size)
        return size

    def release(self, holder: Holder) -> None:
        """Count the body of a request no more. May be called twice."""
        if holder.held_bytes:
            self._budget.release(holder.held_bytes)
            holder.held_bytes = 0
