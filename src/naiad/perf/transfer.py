"""What channels add up: the time that the generator itself spends on requests, and the tokens of responses."""

from __future__ import annotations


class TransferTimes:
    """Sums that channels add to: the time in ns that sending took, and receiving, and the tokens of the output."""

    __slots__ = ("output_tokens", "receive_ns", "send_ns")

    def __init__(self) -> None:
        self.send_ns = 0
        self.receive_ns = 0
        self.output_tokens = 0

    def take_tokens(self) -> int:
        """The tokens so far, which begin again at 0."""
        taken, self.output_tokens = self.output_tokens, 0
        return taken

    def take(self) -> tuple[int, int]:
        """The sums so far, which begin again at 0."""
        taken = self.send_ns, self.receive_ns
        self.send_ns = self.receive_ns = 0
        return taken
