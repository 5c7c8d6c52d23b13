"""``IdleCallback``: what waits until an instance has nothing in flight."""

from __future__ import annotations

from collections.abc import Callable


class IdleCallback:
    """Holds one callback at a time, and calls it once.

    Attributes:
        callback: what waits; None for nothing.
    """

    __slots__ = ("callback",)

    def __init__(self) -> None:
        self.callback: Callable[[], object] | None = None

    def set(self, callback: Callable[[], object], is_idle: bool) -> None:
        """Hold ``callback`` for the next ``notify``; call it at once when the instance is idle."""
        self.callback = callback
        self.notify(is_idle)

    def notify(self, is_idle: bool) -> None:
        """Call back, if something waits and the instance is idle."""
        callback = self.callback
        if callback is not None and is_idle:
            self.callback = None
            callback()
