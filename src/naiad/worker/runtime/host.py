"""The session of a model instance, as far as what reads and runs its batches needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..api.host import Host

if TYPE_CHECKING:
    import asyncio
    from collections import deque

    from ..ipc.client_memory import Regions
    from ..ipc.types import Locate
    from .inbox import Work
    from .writer import FrameWriter


class RuntimeHost(Host, Protocol):
    """The host with its queue and its writer.

    Attributes:
        instance: the name of the model instance.
        inbox: frames for the thread that runs the model, the oldest first.
        out: writes frames to the server.
        regions: shared memory of clients.
        locate: finds the bytes of the tensors of a frame.
    """

    instance: str
    inbox: deque[Work]
    out: FrameWriter
    regions: Regions
    locate: Locate

    def take_work(self) -> Work | None:
        """The next frame from the inbox, without batches that need not run; None when there is none."""

    def leave_if_gpu_lost(self, error: object) -> None:
        """End the process, whose responses are sent, where it has lost a GPU; ``error`` is what failed."""

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop for coroutines of the model."""
