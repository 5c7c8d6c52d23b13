"""Shared memory of the load generator: made, filled, registered, and taken back at the end."""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from naiad.perf.steps import RegionLayout
from naiad.perf.target.cuda_memory import allocated
from naiad.perf.target.protocol import TargetError
from naiad.perf.target.region_calls import RegionCalls
from naiad.shared_memory.region import FOLDER

_PREFIX: Final = "naiad-perf"


def region_name() -> str:
    """The beginning of names that no other client has."""
    return f"{_PREFIX}-{os.getpid()}-{secrets.token_hex(4)}"


@contextmanager
def registered(kind: str, layout: RegionLayout, calls: RegionCalls) -> Iterator[None]:
    """The regions of a layout, filled and registered until the block is left.

    Args:
        kind: system or cuda.

    Raises:
        TargetError: this machine has no shared memory of that kind, or not enough, or the server refuses a region.
    """
    parts = [
        (layout.input_region, layout.input_bytes, layout.writes),
        (layout.output_region, layout.output_bytes, ()),
    ]
    with ExitStack() as stack:
        for name, size, writes in parts:
            if size:
                make = _system_region if kind == "system" else _cuda_region
                stack.enter_context(make(name, size, writes, calls))
        yield


@contextmanager
def _system_region(name: str, size: int, writes: Sequence[tuple[int, bytes]], calls: RegionCalls) -> Iterator[None]:
    path = f"{FOLDER}/{name}"
    _write(path, size, writes)
    try:
        calls.register_system(name, f"/{name}", size)
    except TargetError as error:
        raise TargetError(
            f"{error}: --shared-memory=system needs a server that sees the {FOLDER} of this machine and takes regions; "
            "naiad serve does with --allow-client-shm=true"
        ) from error
    finally:
        # The server has it open by now. Without a name nothing stays behind, however this process ends.
        os.unlink(path)
    try:
        yield
    finally:
        _take_back("system", name, calls)


def _write(path: str, size: int, writes: Sequence[tuple[int, bytes]]) -> None:
    """A new file of shared memory with its content.

    Raises:
        TargetError: the machine has no such memory, or not enough.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise TargetError(
            f"--shared-memory=system needs {FOLDER}, where a file cannot be made: {error.strerror}"
        ) from None
    try:
        # Takes the memory now: a write to a file of holes ends the process with SIGBUS when none is left.
        os.posix_fallocate(descriptor, 0, size)
        with mmap.mmap(descriptor, size) as memory:
            for offset, data in writes:
                memory[offset : offset + len(data)] = data
    except OSError as error:
        os.unlink(path)
        raise TargetError(
            f"{FOLDER} has no room for {size} bytes of --shared-memory=system: {error.strerror}; make it larger, or "
            "send fewer steps"
        ) from None
    finally:
        os.close(descriptor)


@contextmanager
def _cuda_region(name: str, size: int, writes: Sequence[tuple[int, bytes]], calls: RegionCalls) -> Iterator[None]:
    with allocated(size, writes) as handle:
        try:
            calls.register_cuda(name, handle, 0, size)
        except Exception as error:
            raise TargetError(
                f"{error}: --shared-memory=cuda needs a server that uses the devices of this machine and takes regions"
            ) from error
        try:
            yield
        finally:
            _take_back("cuda", name, calls)


def _take_back(kind: str, name: str, calls: RegionCalls) -> None:
    # A server that is gone has no regions either, and the measurement is done.
    with suppress(TargetError):
        calls.unregister(kind, name)
