"""Memory that is free, and that the C library keeps for the next allocations."""

from __future__ import annotations

import ctypes
from functools import cache


def return_freed_memory() -> None:
    """Return memory that the C library keeps to the system; do nothing where that library has no such call.

    Frameworks free most of what a load takes, and glibc keeps it: half of what a process has, with some. Blocks that
    lie below one in use are returned by this call alone. It takes milliseconds, in which other threads may wait for
    memory, so it is for the end of a load.
    """
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:
        trim(0)


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
