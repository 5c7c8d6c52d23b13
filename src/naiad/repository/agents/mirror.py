"""The mirror that agents fetch models into; opened by the first of them, so that a server without any has none."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from naiad.repository.remote.mirror.mirror import Mirror
    from naiad.repository.remote.opening import Mirrors


class AgentMirror:
    """The mirror in ``folder`` with at most ``limit`` bytes (0 for any number). Any thread may call its methods."""

    def __init__(self, folder: str = "~/.cache/naiad/mirror", limit: int = 0) -> None:
        self._folder = folder
        self._limit = limit
        self._lock = threading.Lock()
        self._mirrors: Mirrors | None = None

    def open(self) -> Mirror:
        """The mirror.

        Raises:
            OptionError: its folder cannot be used.
        """
        from naiad.repository.remote.opening import Mirrors

        with self._lock:
            if self._mirrors is None:
                self._mirrors = Mirrors(self._folder, self._limit)
            return self._mirrors.of("models")

    def close(self) -> None:
        """End every transfer, and release all folders in use."""
        with self._lock:
            if self._mirrors is not None:
                self._mirrors.close()
