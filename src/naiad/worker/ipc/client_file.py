"""A file of a client in this process: copied from and to through a mapping where that can be done safely."""

from __future__ import annotations

import os
from time import monotonic
from typing import Callable

from .errors import ErrorCode, FailedError
from .sigbus_guard import FileEndedError, GuardedMapping, mapping_of
from .types import Array

KEEP_MAPPED_S = 2.0
"""How long an unused file stays mapped. Mapped pages count as memory of this process."""
LOOKED_S = 0.25
"""How long a part that was found without holes counts as such."""
# Bytes per system call: Linux transfers less than 2 GiB at once.
_ONE_CALL = 1 << 30
# The unit of ``st_blocks`` on Linux, whatever the block size of the file system is.
_BLOCK = 512


class RegionError(Exception):
    """A region cannot be read or written; ``caller_error`` is the error that the caller gets."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INTERNAL) -> None:
        super().__init__(message)
        self.caller_error = FailedError(message, code)


class ClientFile:
    """A file that a region lies in; its descriptor is closed when nobody uses it any more.

    ``may_map`` tells whether a number of further bytes may be mapped.
    """

    __slots__ = ("_filled", "_filled_s", "_mapping", "_may_map", "_used_s", "descriptor", "name")

    def __init__(self, name: str, descriptor: int, may_map: Callable[[int], bool]) -> None:
        self.name = name
        self.descriptor = descriptor
        self._may_map = may_map
        self._mapping: GuardedMapping | None = None
        self._used_s = 0.0
        # The part in which there was memory at that time.
        self._filled = (0, 0)
        self._filled_s = 0.0

    def __del__(self) -> None:
        os.close(self.descriptor)

    @property
    def mapped_bytes(self) -> int:
        """How much of it is mapped."""
        mapping = self._mapping
        return 0 if mapping is None else mapping.size

    def trim(self) -> None:
        """Unmap it if it was not needed for a while."""
        if self._mapping is not None and monotonic() - self._used_s > KEEP_MAPPED_S:
            # A copy in progress has a reference of its own, so the memory is unmapped after it.
            self._mapping = None

    def read_into(self, target: Array, offset: int) -> None:
        """Fill an array of bytes with those at ``offset``.

        Raises:
            RegionError: the file is not that long any more.
        """
        end = offset + len(target)
        # First, since a copy beyond the end raises SIGBUS: the guard is for files that shrink during the copy.
        size = self._checked_size(end)
        if self._has_memory(offset, end) and (mapping := self._mapped(size, end)) is not None:
            try:
                mapping.read_into(target, offset)
                return
            except FileEndedError:
                # Reading the file says what has become of it.
                self._mapping = None
        self._read_file(target.data, offset)

    def write(self, source: Array, offset: int) -> None:
        """Write an array of bytes at ``offset``.

        Raises:
            RegionError: the file is not that long any more, or the system has no memory for it.
        """
        end = offset + len(source)
        size = self._checked_size(end)
        # No check for holes as in ``read_into``: a write allocates them in any case.
        if (mapping := self._mapped(size, end)) is not None:
            try:
                mapping.write(source, offset)
                return
            except FileEndedError:
                self._mapping = None
                # Raises if the file has shrunk. Otherwise the system has no memory left, which the write below reports.
                self._checked_size(end)
        self._write_file(source.data, offset)

    def _checked_size(self, end: int) -> int:
        """The size of the file, ``end`` at least: it is not made larger behind its owner's back."""
        size = os.lseek(self.descriptor, 0, os.SEEK_END)
        if size < end:
            raise self._truncated(end)
        return size

    def _has_memory(self, offset: int, end: int) -> bool:
        """Whether the part was written. Reading holes through a mapping would fill them with memory.

        The result is cached, since a look at the file for every request costs too much. Holes that its owner makes
        meanwhile lie where memory was.
        """
        now = monotonic()
        begin, until = self._filled
        if begin <= offset and end <= until and now - self._filled_s < LOOKED_S:
            return True
        status = os.fstat(self.descriptor)
        if status.st_blocks * _BLOCK >= status.st_size:
            self._filled = (0, status.st_size)
        else:
            try:
                if os.lseek(self.descriptor, offset, os.SEEK_HOLE) < end:
                    return False
            except OSError:
                # It has become shorter.
                return False
            self._filled = (offset, end)
        self._filled_s = now
        return True

    def _mapped(self, size: int, end: int) -> GuardedMapping | None:
        """A mapping of the file, which has ``size`` bytes, up to ``end`` at least; None where there is to be none."""
        mapping = self._mapping
        # A region that is larger than the mapping lies in a file that has grown: it is mapped anew, as a whole.
        if mapping is None or mapping.size < end:
            # The new mapping takes the place of the old one, so the difference alone counts.
            if mapping_of is None or not self._may_map(size - self.mapped_bytes):
                return None
            try:
                mapping = self._mapping = mapping_of(self.descriptor, size)
            except OSError:
                # Reading and writing the file works without a mapping.
                return None
        self._used_s = monotonic()
        return mapping

    def _read_file(self, target: memoryview, offset: int) -> None:
        at, size = 0, len(target)
        while at < size:
            read = os.preadv(self.descriptor, [target[at : at + _ONE_CALL]], offset + at)
            if not read:
                # The file has shrunk since its size was checked.
                raise self._truncated(offset + size)
            at += read

    def _write_file(self, source: memoryview, offset: int) -> None:
        at, size = 0, len(source)
        try:
            while at < size:
                at += os.pwrite(self.descriptor, source[at : at + _ONE_CALL], offset + at)
        except OSError as error:
            raise RegionError(
                f"shared memory region '{self.name}' cannot be written: {error.strerror}", ErrorCode.UNAVAILABLE
            ) from error

    def _truncated(self, needed: int) -> RegionError:
        return RegionError(
            f"shared memory region '{self.name}' is not as large as it was when it was registered: its file ends "
            f"before byte {needed}. Keep the file as it is while the region is registered",
            ErrorCode.INVALID_ARG,
        )
