"""Shared memory of a client, and the tensors of one request in it."""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np

from naiad.client.errors import ResponseError
from naiad.errors import InvalidArgumentError
from naiad.shared_memory.region import FOLDER, RegionRef
from naiad.tensor.dtypes import DataType

Array = np.ndarray[Any, Any]
PREFIX: Final = "naiad-client"
LEAST_BYTES: Final = 1 << 18
"""Smaller tensors are sent: over HTTP that takes as little processor time as the calls that read them from a file."""
_ALIGNMENT: Final = 64


def aligned(size: int) -> int:
    """The room that a tensor of ``size`` bytes takes."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def process_marks() -> str:
    """What tells this process from all others of the machine: its namespace of process ids, its id, when it began.

    Raises:
        OSError: the system does not say.
    """
    return process_marks_of(os.getpid())


def process_marks_of(pid: int) -> str:
    """The marks of another process of the same namespace; errors as ``process_marks``."""
    with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
        # The name of the program, in parentheses, may hold anything.
        began = file.read().rpartition(")")[2].split()[19]
    return f"{os.stat('/proc/self/ns/pid').st_ino}-{pid}-{began}"


class ClientRegion:
    """A shared-memory region of a client, which no other client knows of.

    Its file has a name only until the server has opened it: whatever happens, nothing stays in ``/dev/shm``.

    Args:
        byte_size: taken from the machine's shared memory at once.

    Attributes:
        name: under which it is registered.
        memory: its bytes.
        is_registered: whether the server knows it.
        generation: of the pool when it was taken.

    Raises:
        OSError: the machine has no such memory, or not enough.
    """

    __slots__ = ("__weakref__", "_path", "byte_size", "generation", "is_registered", "memory", "name")

    def __init__(self, byte_size: int) -> None:
        self.name = f"{PREFIX}-{process_marks()}-{secrets.token_hex(16)}"
        self.byte_size = byte_size
        self.is_registered = False
        self.generation = 0
        self._path = f"{FOLDER}/{self.name}"
        # Others of the machine may not read what a client sends.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            # A write to a file of holes would end the process (SIGBUS) once no memory is left.
            os.posix_fallocate(descriptor, 0, byte_size)
            self.memory: Array = np.frombuffer(mmap.mmap(descriptor, byte_size), np.uint8)
        except BaseException:
            self.unlink()
            raise
        finally:
            os.close(descriptor)

    @property
    def key(self) -> str:
        """Of the POSIX shared memory object."""
        return f"/{self.name}"

    def unlink(self) -> None:
        """Remove the name of the file; the memory stays as long as anything uses it."""
        path, self._path = self._path, ""
        if path:
            with suppress(FileNotFoundError):
                os.unlink(path)


class RegionOwner(Protocol):
    """Where a region comes from and goes to."""

    def release(self, region: ClientRegion) -> None:
        """The server and all arrays are done with a region; may be called by the garbage collector."""

    def discard(self, region: ClientRegion) -> None:
        """The server may use a region still, so that no other request may."""


class _OutputMemory:
    """Memory that arrays look into; with the last of them its region goes back."""

    def __init__(self, region: ClientRegion, owner: RegionOwner) -> None:
        self._region = region
        self._owner: RegionOwner | None = owner
        address, _ = region.memory.__array_interface__["data"]
        self.__array_interface__ = {
            "version": 3,
            "shape": (region.byte_size,),
            "typestr": "|u1",
            "data": (address, True),
        }

    def abandon(self) -> None:
        """The region goes elsewhere."""
        self._owner = None

    def __del__(self) -> None:
        if self._owner is not None:
            self._owner.release(self._region)


class PlacedTensors:
    """The tensors of one request that lie in a region: a context that ends with the response.

    Without an error the region goes back to its owner, once no array looks into it. With an error the server may read
    or write it still, so it is discarded, unless the server cannot have begun.

    Args:
        outputs: the size in bytes that each wanted output has room for in the region, 0 for those that are sent; empty
            for all outputs of the model, which are sent.

    Attributes:
        outputs: where each wanted output is written; None for those that are sent.
    """

    __slots__ = ("_at", "_memory", "_owner", "outputs", "region")

    def __init__(self, region: ClientRegion, owner: RegionOwner, outputs: Mapping[str, int]) -> None:
        self.region = region
        self._owner = owner
        self._at = 0
        self._memory: _OutputMemory | None = None
        self.outputs: dict[str, RegionRef | None] = {
            name: self._reserve(size) if size else None for name, size in outputs.items()
        }

    def _reserve(self, size: int) -> RegionRef:
        found = RegionRef(self.region.name, self._at, size)
        self._at += aligned(size)
        return found

    def place(self, data: bytes | memoryview) -> RegionRef | None:
        """Copy an input into the region; None for one that is smaller than ``LEAST_BYTES``, or finds no room."""
        if len(data) < LEAST_BYTES or self._at + len(data) > self.region.byte_size:
            return None
        found = self._reserve(len(data))
        # numpy lets other threads run meanwhile.
        self.region.memory[found.offset : found.offset + len(data)] = np.frombuffer(data, np.uint8)
        return found

    def output(self, name: str, datatype: DataType, shape: tuple[int, ...]) -> Array:
        """An output that the server has written, to be read only.

        Raises:
            ValueError: the request did not place it, or it is larger than its place.
        """
        place = self.outputs.get(name)
        size = int(np.prod(shape, dtype=np.int64)) * datatype.numpy.itemsize
        if place is None or size > place.byte_size:
            raise ValueError(f"the output '{name}' is not where the request asked for it")
        if self._memory is None:
            self._memory = _OutputMemory(self.region, self._owner)
        whole: Array = np.asarray(self._memory)
        return whole[place.offset : place.offset + size].view(datatype.numpy).reshape(shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        memory, self._memory = self._memory, None
        if error is None:
            if memory is None:
                self._owner.release(self.region)
            return
        if memory is not None:
            memory.abandon()
        if isinstance(error, InvalidArgumentError) or (isinstance(error, ResponseError) and error.may_pass_later):
            self._owner.release(self.region)
        else:
            self._owner.discard(self.region)
