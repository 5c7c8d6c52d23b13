"""How much pinned memory this process has: memory that a GPU copies without the processor, and that cannot be paged."""

from __future__ import annotations

import threading
from typing import Final


class PinnedPool:
    """Counts the pinned memory of all instances of this process.

    Attributes:
        used_bytes: what is taken now.
    """

    def __init__(self) -> None:
        self.used_bytes = 0
        self._lock = threading.Lock()

    def take(self, size: int, limit: int) -> bool:
        """Count ``size`` more bytes; False, and nothing is counted, when that would be above ``limit``."""
        with self._lock:
            if self.used_bytes + size > limit:
                return False
            self.used_bytes += size
            return True

    def release(self, size: int) -> None:
        """Count ``size`` bytes less."""
        with self._lock:
            self.used_bytes -= size


POOL: Final = PinnedPool()
"""That of this process."""
