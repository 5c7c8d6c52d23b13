"""Until when a call has to be done."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple


class Deadline(NamedTuple):
    """The end of the time that a caller gave.

    Attributes:
        at_s: on the monotonic clock.
        timeout_s: the time that the caller gave, for errors.
    """

    at_s: float
    timeout_s: float

    @property
    def left_s(self) -> float:
        """The time until then; negative afterwards."""
        return self.at_s - monotonic()


def deadline_in(timeout_s: float) -> Deadline:
    """The end of a time that begins now."""
    return Deadline(monotonic() + timeout_s, timeout_s)
