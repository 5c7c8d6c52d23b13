"""The time slice of a thread: how long the system's scheduler lets it run before others that want its core."""

from __future__ import annotations

import ctypes
import platform
import sys
from typing import Final

# The C library has no functions for these calls of Linux: (sched_setattr, sched_getattr) by machine.
_CALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275)}
_ORDINARY: Final = 0
_FOR_THIS_THREAD_ALONE: Final = 1
_SHORTEST_NS: Final = 100_000


class _Attributes(ctypes.Structure):
    """``struct sched_attr`` of Linux in its first form, as in sched_setattr(2)."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def shorten_time_slice() -> None:
    """Give this thread the shortest time slice, for a thread that works briefly and often, such as an event loop.

    When it wakes, Linux 6.12 and newer then lets it run at once in place of a thread that computes. Otherwise it waits
    until that one's slice is over, for up to 4 ms. Its share of the processor is the same. Threads and processes that
    it starts have the usual slice. Nothing happens where the system has no such setting or does not permit it, and
    where the thread has another policy than the ordinary one or a raised priority.
    """
    calls = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if calls is None:
        return
    set_attributes, get_attributes = calls
    found = _Attributes()
    size = ctypes.sizeof(found)
    system = ctypes.CDLL(None)
    if system.syscall(get_attributes, 0, ctypes.byref(found), size, 0) or found.policy != _ORDINARY:
        return
    if found.nice < 0:
        # What the thread starts would lose its priority together with the slice.
        return
    found.size, found.flags, found.runtime = size, _FOR_THIS_THREAD_ALONE, _SHORTEST_NS
    system.syscall(set_attributes, 0, ctypes.byref(found), 0)
