"""Memory that is free, and that the C library keeps for the next allocations."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

# Parameters of glibc's ``mallopt``.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_TRIM_BYTES: Final = 1 << 26
_MMAP_BYTES: Final = 1 << 25
"""Where glibc's own adjustment of both ends, on 64 bits. It makes none once one of them is set."""
_LARGE_BYTES: Final = 1 << 17
"""Freeing a block of this size makes glibc look at the end of an arena."""


class _EndsOfArenas:
    """Has glibc return the ends of its arenas while anybody wants it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0

    def want(self) -> None:
        with self._lock:
            self._wanted += 1
            _set(_M_MMAP_THRESHOLD, _MMAP_BYTES)
            _set(_M_TRIM_THRESHOLD, 0)

    def leave(self) -> None:
        with self._lock:
            self._wanted -= 1
            if not self._wanted:
                _set(_M_TRIM_THRESHOLD, _TRIM_BYTES)


_ends = _EndsOfArenas()


def return_freed_memory() -> None:
    """Return memory that the C library keeps to the system; do nothing where that library has no such call.

    Frameworks free most of what a load takes, and glibc keeps it: half of what a process has, with some. Blocks that
    lie below one in use are returned by this call alone. It takes milliseconds, in which other threads may wait for
    memory, so it is for the end of a load.
    """
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def returning_freed_memory() -> Iterator[None]:
    """Return what is freed within the block to the system, and at its end what was freed before.

    ``malloc_trim`` returns blocks that lie below one in use. It leaves what lies at the end of the memory of a thread
    other than the first: up to 64 MiB in each of glibc's arenas, where glibc looks when a large block is freed there.
    """
    library = _c_library()
    if not hasattr(library, "malloc_trim"):
        yield
        return
    _ends.want()
    try:
        yield
    finally:
        # In the arena of this thread, which may have freed much.
        library.free(ctypes.c_void_p(library.malloc(ctypes.c_size_t(_LARGE_BYTES))))
        _ends.leave()
        return_freed_memory()


def _set(parameter: int, value: int) -> None:
    _c_library().mallopt(parameter, value)


@cache
def _c_library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    return library
