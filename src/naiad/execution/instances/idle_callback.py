"""``IdleCallback``: what waits until an instance has nothing in flight."""

from __future__ import annotations

from collections.abc import Callable


class IdleCallback:
    """Holds one callback at a time, and calls it once."""

    __slots__ = ("_callback",)

    def __init__(self) -> None:
        self._callback: Callable[[], object] | None = None

    def set(self, callback: Callable[[], object], is_idle: bool) -> None:
        """Hold ``callback`` for the next ``notify``; call it at once when the instance is idle."""
        self._callback = callback
        self.notify(is_idle)

    def notify(self, is_idle: bool) -> None:
        """Call back, if something waits and the instance is idle."""
        callback = self._callback
        if callback is not None and is_idle:
            self._callback = None
            callback()
