"""How many versions of a model still use its folder."""

from __future__ import annotations

import threading


class UserCount:
    """A count of users that begins with one, the load. May be used in any thread; nothing waits for a file."""

    __slots__ = ("_lock", "_number")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 1

    def add(self) -> None:
        """Count one more user."""
        with self._lock:
            self._number += 1

    def remove(self) -> bool:
        """Count one user less; whether it was the last one."""
        with self._lock:
            self._number -= 1
            return self._number == 0
