"""Reused memory in which the inputs of a batch that arrived in parts are put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from naiad.worker.ipc.buffer_pool import LockedPool
from naiad.worker.ipc.frame_body import join_into
from naiad.worker.ipc.segments import LARGER
from naiad.worker.ipc.types import Place

POOL_BYTES = 1 << 30
"""The most bytes that are kept for a few seconds: a batch of images has hundreds of megabytes."""


class InputMemory:
    """Memory that one thread takes and any thread trims."""

    def __init__(self) -> None:
        self._pool = LockedPool(POOL_BYTES, LARGER)

    def joined(self, parts: Sequence[Place], size: int) -> Place:
        """Where parts of ``size`` bytes together lie one behind the other."""
        data = self._pool.take(size)
        join_into(data, [np.frombuffer(buffer, np.uint8, nbytes, offset) for buffer, offset, nbytes in parts])
        return data, 0, size

    def trim(self) -> None:
        """Drop memory that was not needed for a while."""
        self._pool.trim()
