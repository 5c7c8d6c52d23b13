"""Memory of a CUDA device that a server may open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from naiad.perf.target.protocol import TargetError
from naiad.shared_memory import cuda

_DEVICE: Final = 0


@contextmanager
def allocated(size: int, writes: Sequence[tuple[int, bytes]]) -> Iterator[bytes]:
    """Memory of the first device with its content; gives the handle by which a server opens it.

    Args:
        size: in bytes.
        writes: offsets, and the data that go there.

    Raises:
        TargetError: this machine has no device, or the device has not enough memory, or fails.
    """
    try:
        driver = cuda.driver()
    except OSError as error:
        raise TargetError(
            f"--shared-memory=cuda needs a CUDA device, which this machine does not have: {error}; use "
            "--shared-memory=system"
        ) from None
    try:
        address = driver.allocate(_DEVICE, size)
    except OSError as error:
        raise TargetError(f"--shared-memory=cuda: {size} bytes cannot be allocated: {error.strerror}") from None
    try:
        yield _filled(driver, address, writes)
    finally:
        driver.free(_DEVICE, address)


def _filled(driver: cuda.Driver, address: int, writes: Sequence[tuple[int, bytes]]) -> bytes:
    try:
        for offset, data in writes:
            driver.write(_DEVICE, address + offset, data)
        return driver.export(_DEVICE, address)
    except OSError as error:
        raise TargetError(f"--shared-memory=cuda: the memory cannot be filled: {error.strerror}") from None
