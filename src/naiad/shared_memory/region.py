"""A region: memory of a client that requests point into instead of carrying their tensors.

A region is read and written through a file descriptor and never mapped: a client that truncates its file would kill
every process that reads a mapping of it (SIGBUS). A short read reports the same as an error.

A region lives as long as anything refers to it. Unregistering removes its name; requests that use it continue.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final, NamedTuple, Protocol

from naiad.errors import InternalError, InvalidArgumentError, UnavailableError

FOLDER: Final = "/dev/shm"
RESERVED: Final = "triton_python_backend_shm_region_"
MAX_SIZE: Final = 2**63 - 1
SPARSE_BYTES: Final = 1 << 26
"""Larger inputs must have been written by their client: reading holes would allocate memory that was never used."""
_LONGEST_KEY: Final = 255
_ONE_CALL: Final = 1 << 30
_FULL: Final = (errno.EMFILE, errno.ENFILE)


class Region(Protocol):
    """A region of any kind of memory, as requests use it.

    Attributes:
        name: as registered.
        byte_size: of the region.
        descriptor: of its file, which may be passed to another process; -1 for none.
        start: its offset in that file.
    """

    @property
    def name(self) -> str: ...
    @property
    def byte_size(self) -> int: ...
    @property
    def descriptor(self) -> int: ...
    @property
    def start(self) -> int: ...

    def check_filled(self, size: int) -> None:
        """Check that an input of ``size`` bytes can be there.

        Raises:
            NaiadError: the client has not written that many bytes.
        """

    def read_into(self, target: memoryview, offset: int) -> None:
        """Fill ``target`` with the bytes at ``offset``; may be called in any thread.

        Raises:
            NaiadError: the bytes cannot be read.
        """

    def write(self, data: memoryview, offset: int) -> None:
        """Write ``data`` at ``offset``; may be called in any thread.

        Raises:
            NaiadError: the bytes cannot be written.
        """


class RegionRef(NamedTuple):
    """A part of a region, as a request names it."""

    region: str
    offset: int
    byte_size: int


class RegionPart(NamedTuple):
    """A part of a registered region: ``byte_size`` bytes from ``offset`` on."""

    region: Region
    offset: int
    byte_size: int

    def write(self, data: memoryview, output: str) -> None:
        """Write an output, which may be smaller than the part.

        Raises:
            NaiadError: it is larger than the part, or the region has become too small.
        """
        if len(data) > self.byte_size:
            raise InternalError(too_small_text(output, self.byte_size, len(data)))
        self.region.write(data, self.offset)


def too_small_text(output: str, found: int, needed: int) -> str:
    """The error text for an output that does not fit its part of a region."""
    return (
        f"shared memory size specified with the request for output '{output}' ({found} bytes) should be at least "
        f"{needed} bytes to hold the results"
    )


def truncated_text(name: str, needed: int) -> str:
    """The error text for a region whose file has become too small."""
    return (
        f"shared memory region '{name}' is not as large as it was when it was registered: its file ends before byte "
        f"{needed}. Keep the file as it is while the region is registered"
    )


class SystemRegion:
    """A part of a file in ``/dev/shm``.

    Args:
        name: as registered.
        key: of the POSIX shared memory object, as the client gave it.
        offset: where the region begins.
        byte_size: of the region.

    Raises:
        InvalidArgumentError: the key is invalid, or the region is not within the object.
        InternalError: there is no such object.
        UnavailableError: too many files are open.
    """

    __slots__ = ("__weakref__", "byte_size", "descriptor", "key", "name", "start")

    def __init__(self, name: str, key: str, offset: int, byte_size: int) -> None:
        self.name = name
        self.key = key
        self.start = offset
        self.byte_size = byte_size
        # Set before anything can fail, since ``__del__`` runs all the same.
        self.descriptor = -1
        self.descriptor = _open(name, key)
        if byte_size < 1 or offset < 0 or offset + byte_size > os.fstat(self.descriptor).st_size:
            raise InvalidArgumentError(
                f"failed to register shared memory region '{name}': invalid args, expected bytes {offset} to "
                f"{offset + byte_size} to lie in '{key}', which has {os.fstat(self.descriptor).st_size}"
            )

    def __del__(self) -> None:
        descriptor, self.descriptor = getattr(self, "descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)

    def check_filled(self, size: int) -> None:
        """Check that the file has memory for a large input of ``size`` bytes.

        Raises:
            InvalidArgumentError: fewer bytes were written.
        """
        # A block of ``st_blocks`` has 512 bytes, whatever the file system's own size is.
        if size > SPARSE_BYTES and (held := os.fstat(self.descriptor).st_blocks * 512) < size:
            raise InvalidArgumentError(
                f"shared memory region '{self.name}' lies in a file of which {held} bytes have been written, expected "
                f"at least the {size} bytes of the input"
            )

    def read_into(self, target: memoryview, offset: int) -> None:
        """Fill ``target`` from the file; InvalidArgumentError when the file has become too small."""
        at, size = 0, len(target)
        while at < size:
            # In bounded parts: Linux moves less than 2 GiB in one call.
            read = os.preadv(self.descriptor, [target[at : at + _ONE_CALL]], self.start + offset + at)
            if not read:
                raise InvalidArgumentError(truncated_text(self.name, self.start + offset + size))
            at += read

    def write(self, data: memoryview, offset: int) -> None:
        """Write to the file, without extending it; InvalidArgumentError when it has become too small."""
        at, size = 0, len(data)
        # Checked first, because a write past the end would make the client's file larger.
        if os.fstat(self.descriptor).st_size < self.start + offset + size:
            raise InvalidArgumentError(truncated_text(self.name, self.start + offset + size))
        try:
            while at < size:
                at += os.pwrite(self.descriptor, data[at : at + _ONE_CALL], self.start + offset + at)
        except OSError as error:
            raise UnavailableError(f"shared memory region '{self.name}' cannot be written: {error.strerror}") from error


def _open(name: str, key: str) -> int:
    """Open the shared memory object of a key; errors as ``SystemRegion``."""
    # As in the C library, any number of slashes may come first.
    file = key.lstrip("/")
    if file.startswith(RESERVED):
        raise InvalidArgumentError(
            f"cannot register shared memory region '{name}' with key '{key}' as the key contains the reserved prefix "
            f"'{RESERVED}'"
        )
    if not file:
        raise InvalidArgumentError(f"cannot register shared memory region '{name}' - invalid shm key '{key}'")
    if not _is_file_name(file):
        raise _unopened(key)
    try:
        # Opening must not block on a pipe, and must not follow a link to another file.
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(f"{FOLDER}/{file}", flags)
    except OSError as error:
        # The server's own shortage, which a later attempt may overcome.
        if error.errno in _FULL:
            raise UnavailableError(
                f"the server has too many open files for another shared memory region: {error}"
            ) from None
        raise _unopened(key) from None
    # A device or a pipe opens as well, but has no size and may block.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unopened(key)
    return descriptor


def _is_file_name(text: str) -> bool:
    if not text or "/" in text or "\0" in text or text in (".", ".."):
        return False
    try:
        # A lone surrogate in the key cannot be a file name.
        return len(os.fsencode(text)) <= _LONGEST_KEY
    except UnicodeEncodeError:
        return False


def _unopened(key: str) -> InternalError:
    return InternalError(f"Unable to open shared memory region: '{key}'")
