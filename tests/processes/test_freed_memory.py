"""Memory that was freed goes back to the system."""

from __future__ import annotations

import ctypes

import psutil
import pytest

from naiad.processes.freed_memory import return_freed_memory

MIB = 1 << 20
BLOCKS = 1024
# Too small for a mapping of its own, which would go back by itself.
BLOCK_BYTES = 64 << 10
KEPT = 16


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library has no such call")
def test_blocks_between_others_go_back() -> None:
    process = psutil.Process()
    blocks = [bytearray(b"x" * BLOCK_BYTES) for _ in range(BLOCKS)]
    # They hold the end of the heap in place.
    kept = blocks[::KEPT]
    blocks.clear()
    before = process.memory_info().rss
    return_freed_memory()
    assert before - process.memory_info().rss > BLOCKS * BLOCK_BYTES // 2
    assert all(block == b"x" * BLOCK_BYTES for block in kept)
