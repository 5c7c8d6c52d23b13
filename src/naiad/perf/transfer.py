"""The time that the generator itself spends on requests."""

from __future__ import annotations


class TransferTimes:
    """Sums that channels add to: the time in ns that sending took, and receiving."""

    __slots__ = ("receive_ns", "send_ns")

    def __init__(self) -> None:
        self.send_ns = 0
        self.receive_ns = 0

    def take(self) -> tuple[int, int]:
        """The sums so far, which begin again at 0."""
        taken = self.send_ns, self.receive_ns
        self.send_ns = self.receive_ns = 0
        return taken
