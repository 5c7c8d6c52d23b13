"""How long to wait before a child that has ended is started again."""

from __future__ import annotations

from typing import Final

FIRST_S: Final = 0.1
LONGEST_S: Final = 30.0
WORKING_S: Final = 0.8
"""After a child that had done some work: it is a request that ends it, and the next one may be a good one."""
HEALTHY_AFTER_S: Final = 60.0
PATIENCE_S: Final = 4.0
"""Requests wait for a child that will be there after so long, not for one that takes longer."""


class RestartBackoff:
    """Pauses that grow while children end one after the other."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def ended(self, lived_s: float, worked: bool) -> None:
        """A child has ended: after how long, and whether it had done some work."""
        if lived_s > HEALTHY_AFTER_S:
            self._next_s = FIRST_S
        elif worked:
            self._next_s = min(self._next_s, WORKING_S)

    @property
    def is_long(self) -> bool:
        """Whether the next pause is longer than requests wait."""
        return self._next_s > PATIENCE_S

    def take(self) -> float:
        """The next pause, in seconds; the one after it is longer."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, LONGEST_S)
        return pause_s
