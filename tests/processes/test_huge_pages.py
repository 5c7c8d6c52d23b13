"""Large blocks of memory move to huge pages, and keep what is in them."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import pytest

from naiad.processes.huge_pages import LEAST_BYTES, Mapping, mappings, use_huge_pages, worth_moving

MIB = 1024 * 1024
SMAPS = b"""\
55d0c0000000-55d0c4000000 r--p 00000000 fe:00 4242                       /usr/bin/python3
Rss:               65536 kB
AnonHugePages:         0 kB
7f0000000000-7f0010000000 rw-p 00000000 00:00 0 
Size:             262144 kB
Rss:              262140 kB
AnonHugePages:      4096 kB
7f0010000000-7f0018000000 rw-p 00000000 00:00 0                          [stack]
Rss:                  64 kB
AnonHugePages:         0 kB
7f0020000000-7f0030000000 rw-s 00000000 00:01 77                         /memfd:naiad (deleted)
Rss:              262144 kB
AnonHugePages:         0 kB
"""  # noqa: W291


def test_mappings_are_those_of_private_memory_without_a_file() -> None:
    assert list(mappings(SMAPS.splitlines())) == [
        Mapping(0x7F0000000000, 0x7F0010000000, 262140 * 1024, 4 * MIB),
        Mapping(0x7F0010000000, 0x7F0018000000, 64 * 1024, 0),
    ]


def test_only_large_blocks_that_are_used_in_full_move() -> None:
    large = Mapping(0, LEAST_BYTES, LEAST_BYTES, 0)
    small = Mapping(0, LEAST_BYTES - 4096, LEAST_BYTES, 0)
    sparse = Mapping(0, LEAST_BYTES, LEAST_BYTES // 2, 0)
    moved = Mapping(0, LEAST_BYTES, LEAST_BYTES, LEAST_BYTES)
    assert list(worth_moving([small, large, sparse, moved])) == [large]


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages on request are Linux's")
def test_a_large_array_lies_in_huge_pages_afterwards() -> None:
    if not _can_move():
        pytest.skip("this kernel moves no memory to huge pages (Linux 6.1 and newer do)")
    array = _array_by_itself(2 * LEAST_BYTES)
    array[:] = np.arange(array.size)
    assert _huge_bytes(array) < array.nbytes // 2
    use_huge_pages()
    assert _huge_bytes(array) >= array.nbytes * 0.9
    assert (array == np.arange(array.size)).all()


def _array_by_itself(size: int) -> np.ndarray[Any, Any]:
    """An array of ``size`` bytes in a mapping of its own, without huge pages.

    NumPy asks for them itself, for the memory that it takes. The kernel joins neighbours of one kind to one mapping,
    and other tests may have left huge pages beside this one: between both is a page that nobody may touch.
    """
    page = mmap.PAGESIZE
    block = mmap.mmap(-1, size + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(block))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for edge in (begin, begin + page + size):
        assert protect(edge, page, 0) == 0, ctypes.get_errno()
    return np.frombuffer(block, np.int64, size // 8, page)


def _huge_bytes(array: np.ndarray[Any, Any]) -> int:
    middle = array.ctypes.data + array.nbytes // 2
    with open("/proc/self/smaps", "rb") as file:
        return next(m.huge_bytes for m in mappings(file) if m.begin <= middle < m.end)


def _can_move() -> bool:
    """Whether the kernel knows the call, and allows it."""
    block = mmap.mmap(-1, 4 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(bytes(4 * MIB))
    begin = -(-ctypes.addressof(ctypes.c_char.from_buffer(block)) // (2 * MIB)) * 2 * MIB
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return bool(advise(begin, 2 * MIB, 25) == 0)
