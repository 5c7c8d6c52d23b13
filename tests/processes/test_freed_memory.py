"""Memory that was freed goes back to the system, wherever the C library keeps it."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import psutil
import pytest

from naiad.processes.freed_memory import return_freed_memory

MIB = 1 << 20
BLOCKS = 1024
# Too small for a mapping of its own, which would go back by itself.
BLOCK_BYTES = 64 << 10
KEPT = 16
glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library has no such call")

# A thread of its own has an arena of its own, and nothing lies behind its blocks.
PROGRAM = """
import ctypes, threading
from naiad.processes.freed_memory import returning_freed_memory

SIZE, COUNT = 4 << 20, 8
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
blocks, begin, end = [], threading.Event(), threading.Event()

def rss_mib():
    return int(open("/proc/self/statm").read().split()[1]) * 4 / 1024

def allocate():
    for _ in range(COUNT):
        blocks.append(library.malloc(ctypes.c_size_t(SIZE)))
        ctypes.memset(blocks[-1], 1, SIZE)
    begin.set()
    end.wait(60)

def free():
    while blocks:
        library.free(ctypes.c_void_p(blocks.pop()))

# From now on blocks of that size are no mappings of their own.
with returning_freed_memory():
    pass
thread = threading.Thread(target=allocate)
before = rss_mib()
thread.start()
assert begin.wait(60)
held = rss_mib()
{freeing}
after = rss_mib()
end.set()
thread.join()
print(before, held, after)
"""
WITHIN = "with returning_freed_memory():\n    free()"
TWICE = "with returning_freed_memory():\n    with returning_freed_memory():\n        pass\n    free()"


@glibc
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


@glibc
@pytest.mark.parametrize("freeing", [WITHIN, TWICE], ids=["one", "two at a time"])
def test_the_memory_of_another_thread_goes_back(freeing: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(freeing=freeing)], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    before, held, after = map(float, done.stdout.split())
    assert held - before > 30
    assert after - before < 6


@glibc
def test_afterwards_the_c_library_keeps_freed_memory_for_the_next_request() -> None:
    """Otherwise each large tensor would cost page faults."""
    freeing = "with returning_freed_memory():\n    pass\nfree()"
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(freeing=freeing)], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    before, _, after = map(float, done.stdout.split())
    assert after - before > 30
