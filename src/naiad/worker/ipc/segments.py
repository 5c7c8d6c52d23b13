"""Shared memory for large tensors: segments of the other side, read in place, and a pool of one's own segments.

A segment is a file without a name, so that nothing is left behind however a process ends. It lies in memory of its own
(``memfd_create``), where no size of ``/dev/shm`` limits it. Where the system or this Python has no such memory, it lies
in ``/dev/shm``, and where that is full, in the folder for temporary files.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import deque
from time import monotonic
from typing import Any, Callable, Sequence

import numpy as np

from .errors import TritonModelException
from .frames import ARENA_SHIFT, LENT
from .mmap import mapped, mapped_alone, sized
from .types import Array

KEEP_FREE_S = 2.0
"""How long a free segment stays in the pool. Tensors of one size come in quick succession or not at all."""
LARGER = 4
"""How many times larger than needed free memory may be that is taken rather than new memory, whose pages are fresh:
batches differ in how many requests they have."""


class ServerSegments:
    """Segments of the other side, mapped once each and released as soon as no array refers to them.

    Arenas have many tensors at a time, and each is released for itself.
    """

    def __init__(self, released: Callable[[int], None]) -> None:
        self._maps: dict[int, Any] = {}
        self._arenas: dict[int, Array] = {}
        self._released = released
        self._watched: dict[int, Any] = {}
        # The numbers and bytes of lent tensors, by the id of the array that stands for them.
        self._lent: dict[int, tuple[int, memoryview]] = {}

    def add(self, number: int, descriptor: int, size: int) -> None:
        """Map a segment; the descriptor is closed."""
        self._maps[number] = mapped_alone(descriptor, size)

    def add_mapped(self, number: int, memory: Array) -> None:
        """Add a segment that is mapped."""
        self._maps[number] = memory

    def add_arena(self, number: int, memory: Array) -> None:
        """Add an arena that is mapped."""
        self._arenas[number] = memory

    def drop_arena(self, number: int) -> None:
        """Forget an arena. Arrays that still refer to it keep it mapped."""
        self._arenas.pop(number, None)

    def drop(self, number: int) -> None:
        """Forget a segment. Arrays that still refer to it keep it mapped."""
        self._maps.pop(number, None)

    def close(self) -> None:
        """Forget all segments and arenas."""
        self._maps.clear()
        self._arenas.clear()

    def open(self, number: int, offset: int, size: int) -> Array:
        """The bytes of a tensor. The segment is released when the last array that refers to them is gone."""
        is_lent = number >= LENT
        if not is_lent:
            mapped = self._maps.get(number)
        else:
            mapped = self._arenas.get(offset >> ARENA_SHIFT)
            offset &= (1 << ARENA_SHIFT) - 1
        if mapped is None:
            raise TritonModelException(f"The server named segment {number}, which it never sent")
        # memoryview in between: numpy would otherwise let arrays refer to the whole segment instead of this one.
        view = memoryview(mapped)[offset : offset + size]
        data = np.frombuffer(view, np.uint8)
        key = id(data)
        if is_lent:
            self._lent[key] = number, view
        # The dictionary holds the weak reference, which would otherwise be gone before it could call. The call comes in
        # whichever thread drops the last array.
        self._watched[number] = weakref.ref(data, lambda _: self._unwatch(number, key))
        return data

    def _unwatch(self, number: int, key: int) -> None:
        self._watched.pop(number, None)
        self._lent.pop(key, None)
        self._released(number)

    def find_lent(self, data: Any) -> tuple[int, int, Array] | None:
        """Find the lent tensor in which ``data`` lies, an array or a memoryview in row-major order.

        Returns its number, where ``data`` begins in it, and the bytes of ``data``, which do not keep the tensor from
        being released; None if it lies elsewhere.
        """
        if isinstance(data, np.ndarray):
            owner, array = data.base, data
        else:
            owner, array = getattr(data, "obj", None), np.frombuffer(data, np.uint8)
        number, view = self._lent.get(id(owner), (0, None))
        if owner is None or view is None or not array.flags.c_contiguous:
            return None
        offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        return number, offset, np.frombuffer(view[offset : offset + array.nbytes], np.uint8)


class Segment:
    """A segment of this side. ``descriptor`` is -1 once the other side has it."""

    __slots__ = ("bytes", "descriptor", "free_since", "number", "size")

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.descriptor = anonymous_file(size)
        self.free_since = 0.0
        try:
            self.bytes: Array = mapped(self.descriptor, size)
        except BaseException:
            self.close_descriptor()
            raise

    def write(self, data: Any, size: int) -> None:
        """Copy ``size`` bytes in."""
        source = data.reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        self.bytes[:size] = source

    def close_descriptor(self) -> None:
        """Close the file; the memory stays mapped."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class SegmentPool:
    """The segments of this side. Used by one thread at a time, except for ``release``."""

    def __init__(self) -> None:
        self._free: dict[int, list[Segment]] = {}
        self._busy: dict[int, Segment] = {}
        self._returned: deque[Sequence[int]] = deque()
        self._last_number = 0

    def take(self, size: int) -> Segment:
        """A segment of at least ``size`` bytes; a new one has a descriptor, which is to be sent before it is used.

        Raises:
            OSError: the system has no memory for it.
        """
        self.collect()
        capacity = size_class(size)
        free = self._fitting(capacity)
        # The one that came free last: those before it age until they are trimmed.
        segment = free.pop() if free else self._new(capacity)
        self._busy[segment.number] = segment
        return segment

    def has_free(self, size: int) -> bool:
        """Whether ``take`` would return an existing segment."""
        self.collect()
        return bool(self._fitting(size_class(size)))

    def _fitting(self, capacity: int) -> list[Segment] | None:
        """The free segments of the smallest size that will do, if there are any."""
        free = self._free.get(capacity)
        if free:
            return free
        larger = [size for size, found in self._free.items() if found and capacity < size <= LARGER * capacity]
        return self._free[min(larger)] if larger else None

    @property
    def is_waiting(self) -> bool:
        """Whether the other side uses any segment."""
        return bool(self._busy)

    @property
    def is_used(self) -> bool:
        """Whether there is any segment, used by the other side or free."""
        return bool(self._busy or self._free)

    def release(self, numbers: Sequence[int]) -> None:
        """Note segments that the other side released; other numbers are ignored. May be called by any thread."""
        # Only noted, since this is the reading thread: the writing one owns the lists and collects.
        self._returned.append(numbers)

    def collect(self) -> None:
        """Make released segments free to be taken."""
        while self._returned:
            now = monotonic()
            for number in self._returned.popleft():
                segment = self._busy.pop(number, None)
                if segment is not None:
                    segment.free_since = now
                    self._free.setdefault(segment.size, []).append(segment)

    def trim(self) -> list[int]:
        """Drop segments that have been free for a while; their numbers."""
        self.collect()
        limit = monotonic() - KEEP_FREE_S
        dropped: list[int] = []
        for size, segments in list(self._free.items()):
            kept = [s for s in segments if s.free_since > limit]
            dropped += [s.number for s in segments if s.free_since <= limit]
            if kept:
                self._free[size] = kept
            else:
                del self._free[size]
        return dropped

    def close(self) -> None:
        """Unmap all segments. The other side keeps what it has mapped."""
        self._free.clear()
        self._busy.clear()

    def _new(self, capacity: int) -> Segment:
        self._last_number += 1
        return Segment(self._last_number, capacity)


def size_class(size: int) -> int:
    """The size of a segment for a tensor of ``size`` bytes: whole pages, and at most a quarter more than needed."""
    step = max(mmap.PAGESIZE, 1 << max(0, size.bit_length() - 3))
    return -(-size // step) * step


SHM = "/dev/shm"


class Notice:
    """A line for the log that is due at most once in the life of a process."""

    def __init__(self) -> None:
        self._text = ""
        self._is_over = False

    def give(self, text: str) -> None:
        """Make it due, unless it was before."""
        self._text = self._text or text

    def take(self) -> str:
        """The line if it is due and was not taken yet, else ""."""
        if self._is_over or not self._text:
            return ""
        self._is_over = True
        return self._text


notice = Notice()
"""Due when the system has no anonymous memory. The thread that looks after the connection polls it and logs it."""


def anonymous_file(size: int) -> int:
    """The descriptor of a new file of ``size`` bytes without a name: in memory if the system has such memory.

    Raises:
        OSError: there is no place for it.
    """
    try:
        # No limit but memory itself, unlike ``/dev/shm``, which is often small in containers.
        descriptor = os.memfd_create("naiad")
    except (AttributeError, OSError) as error:
        return _file_instead(size, error)
    return sized(descriptor, size)


def _file_instead(size: int, error: Exception) -> int:
    import tempfile  # Few processes need it, and it takes as long to import as half of this package.

    temporary = tempfile.gettempdir()
    try:
        descriptor = _reserved_file(size, SHM)
    except OSError:
        descriptor = _reserved_file(size, temporary)
    notice.give(
        f"there is no memory without a name for large tensors ({error}): files without a name take its place, in "
        f"{SHM} and, where that does not do, in {temporary}"
    )
    return descriptor


def _reserved_file(size: int, folder: str) -> int:
    """A file whose space is reserved: a write into a mapping without space behind it would end the process."""
    import tempfile

    with tempfile.TemporaryFile(prefix="naiad-", dir=folder, buffering=0) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            os.ftruncate(file.fileno(), size)
        return os.dup(file.fileno())
