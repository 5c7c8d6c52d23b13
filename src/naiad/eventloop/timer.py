"""A timer on the event loop that is exact to some ten microseconds.

libuv rounds its timers to whole milliseconds, yet queue delays are often 100 us. Linux's timerfd has the resolution and
is watched by the loop like a socket; elsewhere the loop's own timer is used.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from time import monotonic_ns

# Python has ``os.timerfd_create`` from 3.13 on only. The flags are Linux's TFD_NONBLOCK and TFD_CLOEXEC.
_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000


class _Spec(ctypes.Structure):
    """``struct itimerspec``: interval and first expiry, each in seconds and nanoseconds."""

    _fields_ = [(n, ctypes.c_long) for n in ("interval_s", "interval_ns", "value_s", "value_ns")]


class LoopTimer:
    """Calls ``callback`` on the loop once after each ``arm``; arming again moves the time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._armed_ns = 0
        self._fd = _timerfd_create()
        if self._fd >= 0:
            loop.add_reader(self._fd, self._expired)

    def arm(self, at_ns: int) -> None:
        """Call back at the monotonic time ``at_ns``, at once when that has passed."""
        # A waiting batch arms the timer in every turn for the same time: that costs no system call.
        if at_ns == self._armed_ns:
            return
        self._armed_ns = at_ns
        if self._fd >= 0:
            # An expiry of 0 would disarm a timerfd.
            _timerfd_settime(self._fd, max(at_ns - monotonic_ns(), 1))
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(at_ns - monotonic_ns(), 0) / 1e9, self._fire)

    def close(self) -> None:
        """Stop; no callback comes after this."""
        self._armed_ns = 0
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            # Armed again since the loop saw it readable: the expiry that it reported is gone.
            return
        self._fire()

    def _fire(self) -> None:
        # First, as the callback may arm the timer again.
        self._armed_ns = 0
        self._callback()


def _timerfd_create() -> int:
    if not sys.platform.startswith("linux"):
        return -1
    return int(_libc().timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC))


def _timerfd_settime(fd: int, after_ns: int) -> None:
    spec = _Spec(0, 0, after_ns // 1_000_000_000, after_ns % 1_000_000_000)
    _libc().timerfd_settime(fd, 0, ctypes.byref(spec), None)


def _libc() -> ctypes.CDLL:
    global _LIBC
    if _LIBC is None:
        _LIBC = ctypes.CDLL(None)
    return _LIBC


_LIBC: ctypes.CDLL | None = None
