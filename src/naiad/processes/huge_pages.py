"""Memory of large models in huge pages, which the system takes back at once."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple

_MADV_COLLAPSE: Final = 25
LEAST_BYTES: Final = 64 * 1024 * 1024
"""A smaller block is freed in a few milliseconds anyway."""
_HUGE_BYTES: Final = 2 * 1024 * 1024
_TRIES: Final = 2
"""A page may be busy for a moment (EAGAIN). What fails again stays as it was."""
_MAPPING: Final = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) rw-p [0-9a-f]+ \S+ 0 ")


class Mapping(NamedTuple):
    """Private memory without a file, from ``begin`` to ``end``: how many bytes are there, and in huge pages."""

    begin: int
    end: int
    resident_bytes: int
    huge_bytes: int


def use_huge_pages() -> None:
    """Move the large blocks of this process to huge pages; do nothing where the system cannot (Linux can from 6.1 on).

    A framework frees a model while it holds the interpreter's lock. The system takes 50 to 150 ms to take back 1 GB in
    small pages, in which nothing else runs, and 3 ms in huge ones. The move takes a quarter of a second or more for
    each GB, in which other threads go on, so it is for the end of a load.
    """
    if sys.platform != "linux":
        return
    try:
        with open("/proc/self/smaps", "rb") as file:
            found = tuple(worth_moving(mappings(file)))
    except OSError:
        return
    advise = _madvise()
    for mapping in found:
        # One page at a time: others that need memory wait for a call, up to 17 ms where it moves 1 GB.
        left: Iterable[int] = range(-(-mapping.begin // _HUGE_BYTES) * _HUGE_BYTES, mapping.end, _HUGE_BYTES)
        for _ in range(_TRIES):
            left = [begin for begin in left if advise(begin, min(_HUGE_BYTES, mapping.end - begin), _MADV_COLLAPSE)]


def mappings(lines: Iterable[bytes]) -> Iterator[Mapping]:
    """The mappings of private memory without a file in the lines of ``/proc/PID/smaps``."""
    begin = end = resident = 0
    for line in lines:
        if match := _MAPPING.match(line):
            begin, end = int(match[1], 16), int(match[2], 16)
        elif line.startswith(b"Rss:"):
            resident = _bytes(line)
        elif line.startswith(b"AnonHugePages:") and end:
            yield Mapping(begin, end, resident, _bytes(line))
            end = 0


def worth_moving(found: Iterable[Mapping]) -> Iterator[Mapping]:
    """Those that are large, used in full, and not yet in huge pages for the most part."""
    for mapping in found:
        size = mapping.end - mapping.begin
        # Pages that nobody used would become resident, such as those of a stack.
        is_full = mapping.resident_bytes * 10 >= size * 9
        if size >= LEAST_BYTES and is_full and mapping.huge_bytes * 2 < mapping.resident_bytes:
            yield mapping


def _bytes(line: bytes) -> int:
    return int(line.split()[1]) * 1024


@cache
def _madvise() -> ctypes._NamedFuncPointer:
    # A call by ctypes releases the interpreter, which is the purpose.
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return advise
