"""Mapping a file into memory. Python's own ``mmap`` keeps a descriptor for as long as the mapping lives; with many
segments these would use up the open files that a process may have."""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import partial
from typing import Any

import numpy as np

from .memory_release import memory_release
from .types import Array

_FAILED = ctypes.c_void_p(-1).value


def mapping_functions(libc: ctypes.CDLL) -> tuple[Any, Any]:
    """``mmap`` and ``munmap`` of the C library, with the types of their arguments and results."""
    map_, unmap = libc.mmap, libc.munmap
    map_.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    map_.restype = ctypes.c_void_p
    unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    unmap.restype = ctypes.c_int
    return map_, unmap


_libc = ctypes.CDLL(None, use_errno=True)
_map, _unmap = mapping_functions(_libc)
_advise = _libc.madvise
_advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_REMOVE = 9


class _Mapping:
    """A mapping, which ends with this. numpy makes an array of it that refers to it."""

    def __init__(self, descriptor: int, size: int) -> None:
        address = _map(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED:
            error = ctypes.get_errno()
            raise OSError(error, f"{size} bytes cannot be mapped: {os.strerror(error)}")
        self._size = size
        # At the end of the interpreter the names of this module are gone before the last mapping.
        self._unmap = partial(_unmap, address, size)
        self._release = memory_release.release
        self.__array_interface__: dict[str, Any] = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        # Missing if the mapping failed: ``__del__`` runs for that object as well.
        if hasattr(self, "_release"):
            self._release(self._size, self._unmap)


def mapped(descriptor: int, size: int) -> Array:
    """The first ``size`` bytes of a file as an array of bytes, shared with every other mapping of the file.

    It stays mapped as long as an array refers to it. The descriptor may be closed at once.

    Raises:
        OSError: the system refuses it.
    """
    array: Array = np.asarray(_Mapping(descriptor, size))
    return array


def mapped_alone(descriptor: int, size: int) -> Array:
    """Like ``mapped``, for a descriptor that nothing else needs: it is closed, also where this raises."""
    try:
        return mapped(descriptor, size)
    finally:
        # The mapping outlives its descriptor.
        os.close(descriptor)


def sized(descriptor: int, size: int) -> int:
    """The descriptor of a new file that has ``size`` bytes now; it is closed where that fails.

    Raises:
        OSError: the system refuses it.
    """
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def discard(array: Array) -> None:
    """Give whole pages of a file's memory back to the system, for all who map it: they read zeros there.

    Where the system cannot do that, they keep their content.
    """
    _advise(array.__array_interface__["data"][0], array.size, _REMOVE)
