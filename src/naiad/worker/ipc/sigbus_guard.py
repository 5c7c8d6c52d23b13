"""Copying to and from a mapping of a file that somebody else owns and may truncate at any time.

Access to a mapping beyond the end of its file raises SIGBUS, which ends the process. So no other code gets such a
mapping: its bytes are only copied, and for the length of a copy SIGBUS has a handler. It puts other memory in
the mapping's place, the copy comes to its end, and its caller gets an error. This costs two system calls per copy.
Reading and writing the file without mapping it needs no such care, but takes three to five times as long.

A handler written in Python is possible because the signal comes from the copy itself, where no part of the interpreter
is half done, and because ``ctypes`` takes the interpreter's lock before it calls it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import struct
import sys
import threading
from typing import Any, Callable

import numpy as np

from .mmap import mapping_functions
from .types import Array

_MACHINES = frozenset(("x86_64", "aarch64", "arm64"))
_FAILED = ctypes.c_void_p(-1).value
# As Linux has them on these machines, with every C library: struct sigaction is the handler, the signals that wait
# meanwhile (1024 bits) and the flags; si_addr lies at 16 in siginfo_t.
_ACTION_BYTES = 256
_FLAGS_AT = 8 + 128
_SA_SIGINFO = 4
_ADDRESS_AT = 16
_MAP_FIXED = 0x10

_PROTECTION = mmap.PROT_READ | mmap.PROT_WRITE
# This library keeps the interpreter's lock; its functions take no time.
_libc = ctypes.PyDLL(None, use_errno=True)
_map, _unmap = mapping_functions(_libc)


class FileEndedError(Exception):
    """The file had no memory for all of what was to be copied: it has been truncated, or the system has none left."""


class GuardedMapping:
    """The first ``size`` bytes of a file, mapped until this object is gone. The descriptor may be closed.

    Raises:
        OSError: the system refuses it.
    """

    __slots__ = ("_address", "_array", "_unmap", "is_broken", "size")

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        # At the end of the interpreter the names of this module are gone before the last mapping.
        self._unmap = _unmap
        address = _map(None, size, _PROTECTION, mmap.MAP_SHARED, descriptor, 0)
        if address in (None, _FAILED):
            # ``__del__`` runs for this object, too.
            self._address = 0
            error = ctypes.get_errno()
            raise OSError(error, f"{size} bytes cannot be mapped: {os.strerror(error)}")
        self._address = address
        self._array: Array = np.asarray(_Bytes(address, size))
        self.is_broken = False

    def __del__(self) -> None:
        if self._address:
            self._unmap(self._address, self.size)

    def read_into(self, target: Array, offset: int) -> None:
        """Fill an array of bytes with those at ``offset``.

        Raises:
            FileEndedError: they are not there; the mapping is of no use any more.
        """
        _guard.copy(self, target, self._array[offset : offset + len(target)])

    def write(self, source: Array, offset: int) -> None:
        """Write an array of bytes at ``offset``; errors as ``read_into``."""
        _guard.copy(self, self._array[offset : offset + len(source)], source)

    def replace(self, address: int) -> bool:
        """Put memory of this process in its place, if it holds that address; whether it did."""
        if self.is_broken or not self._address <= address < self._address + self.size:
            return False
        # Shared memory does not count where private memory is limited.
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _MAP_FIXED
        self.is_broken = True
        return bool(_map(self._address, self.size, _PROTECTION, flags, -1, 0) == self._address)


class _Bytes:
    """Lets numpy make an array of memory that it does not own."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


class _Guard:
    """Copies under a handler of SIGBUS, one at a time: a process has one such handler."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mapping: GuardedMapping | None = None
        # Not ``signal.signal``: Python runs its handlers after the instruction, which would fault for ever.
        self._action = _libc.sigaction
        self._action.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        # An attribute, since ctypes frees the callback with its last reference.
        self._handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self._raised)
        self._ours = ctypes.create_string_buffer(_ACTION_BYTES)
        self._before = ctypes.create_string_buffer(_ACTION_BYTES)
        struct.pack_into("=Q", self._ours, 0, ctypes.cast(self._handler, ctypes.c_void_p).value or 0)
        struct.pack_into("=i", self._ours, _FLAGS_AT, _SA_SIGINFO)
        self._ours_at, self._before_at = ctypes.addressof(self._ours), ctypes.addressof(self._before)

    def copy(self, mapping: GuardedMapping, target: Array, source: Array) -> None:
        """Copy bytes, one of the two arrays being in the mapping; errors as ``GuardedMapping.read_into``."""
        number = signal.SIGBUS
        # Handlers belong to the process: of two copies at once, each would restore the handler of the other.
        with self._lock:
            self._mapping = mapping
            self._action(number, self._ours_at, self._before_at)
            try:
                target[:] = source
            finally:
                self._action(number, self._before_at, None)
                self._mapping = None
        if mapping.is_broken:
            raise FileEndedError

    def _raised(self, number: int, info: int, _context: int) -> None:
        """The handler. A signal of another origin comes again, under the earlier handler."""
        mapping = self._mapping
        address = ctypes.c_size_t.from_address(info + _ADDRESS_AT).value
        # Returning repeats the instruction: it either succeeds on the new memory or meets the earlier handler.
        if mapping is None or not mapping.replace(address):
            self._action(number, self._before_at, None)


def _make_guard() -> Any:
    """The guard; None where it is not known how this system has what it takes."""
    known = sys.platform == "linux" and os.uname().machine in _MACHINES and struct.calcsize("P") == 8
    if not known or sys.implementation.name != "cpython":
        return None
    try:
        return _Guard()
    except (OSError, MemoryError, AttributeError):
        return None


_guard = _make_guard()
mapping_of: Callable[[int, int], GuardedMapping] | None = GuardedMapping if _guard is not None else None
"""Maps a file; None where nothing can be mapped safely."""
