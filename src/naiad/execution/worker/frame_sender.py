"""Frames on their way to the worker of an instance."""

from __future__ import annotations

import os
from collections.abc import Iterable

from naiad.execution.worker.channel import WorkerChannel
from naiad.execution.worker.codec.client_memory import OutgoingFrame


class FrameSender:
    """Sends frames to the worker that an instance has at the moment.

    The parts of an instance send with it, so that they need not refer to the instance.

    Attributes:
        channel: to the worker; None while there is none, and frames are dropped.
    """

    __slots__ = ("channel",)

    def __init__(self) -> None:
        self.channel: WorkerChannel | None = None

    def send(self, data: bytes, descriptor: int = -1) -> None:
        """Send a frame with a descriptor, unless that is -1; it is closed in any case."""
        if self.channel is not None:
            self.channel.send(data, descriptor)
        # No worker: nobody else would close it.
        elif descriptor >= 0:
            os.close(descriptor)

    def send_all(self, frames: Iterable[OutgoingFrame]) -> None:
        """Send several frames."""
        for data, descriptor in frames:
            self.send(data, descriptor)

    def waiting(self) -> int:
        """How many frames wait because the worker does not read."""
        return 0 if self.channel is None else self.channel.waiting
