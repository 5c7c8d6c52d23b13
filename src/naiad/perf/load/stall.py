"""Whether a server has stopped responding."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

LEAST_S: Final = 60.0
_TIMES: Final = 10
"""So many times as long as the first response may all others fail to come."""


class StallWatch:
    """Looks whether anything comes back from the server.

    Args:
        first_ns: how long the first response of the run took; slow models get more time.
        now_ns: the present, on any clock that all calls share.
    """

    def __init__(self, first_ns: int, now_ns: int) -> None:
        self.limit_ns = max(int(LEAST_S * 1e9), _TIMES * first_ns)
        self._activity: Hashable = None
        self._since_ns = now_ns

    def is_stalled(self, activity: Hashable, now_ns: int, *, waits: bool) -> bool:
        """Whether nothing has come for too long.

        Args:
            activity: anything that changes with every response.
            waits: whether a response is due.
        """
        if activity != self._activity or not waits:
            self._activity = activity
            self._since_ns = now_ns
        return now_ns - self._since_ns > self.limit_ns
