"""Reused memory in which the inputs of a batch that arrived in parts are put together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic

import numpy as np

from naiad.worker.ipc.buffer_pool import BufferPool
from naiad.worker.ipc.frame_body import join_into
from naiad.worker.ipc.types import Place

POOL_BYTES = 1 << 30
"""The most bytes that are kept for a few seconds: a batch of images has hundreds of megabytes."""


class InputMemory:
    """Memory that one thread takes and any thread trims."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = BufferPool(POOL_BYTES)
        self._trimmed_s = monotonic()

    def joined(self, parts: Sequence[Place], size: int) -> Place:
        """Where parts of ``size`` bytes together lie one behind the other."""
        with self._lock:
            block = self._pool.take(size)
        # What refers to ``data`` keeps its block in use.
        data = block[:size]
        join_into(data, [np.frombuffer(buffer, np.uint8, nbytes, offset) for buffer, offset, nbytes in parts])
        return data, 0, size

    def trim(self) -> None:
        """Drop memory that was not needed for a while."""
        with self._lock:
            now_s = monotonic()
            self._pool.age(now_s - self._trimmed_s)
            self._trimmed_s = now_s
