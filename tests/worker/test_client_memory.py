"""The regions of clients in the process of a Python model: descriptors, holes and errors."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from naiad.worker.ipc import buffer_pool
from naiad.worker.ipc.client_file import RegionError
from naiad.worker.ipc.client_memory import Regions
from naiad.worker.ipc.errors import ErrorCode

SIZE = 100_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "region"
    path.write_bytes(bytes(range(250)) * (SIZE // 250))
    return path


@pytest.fixture
def regions(file: Path) -> Iterator[Regions]:
    made = Regions()
    made.add(1, "r", os.open(file, os.O_RDWR))
    yield made
    made.drop(1)
    # What tests were refused leads to the descriptor.
    gc.collect()


def refused(regions: Regions, act: str, *arguments: object) -> tuple[ErrorCode, str]:
    with pytest.raises(RegionError) as failure:
        getattr(regions, act)(*arguments)
    return failure.value.caller_error.code(), failure.value.caller_error.message()


@pytest.mark.slow
def test_reading_and_writing(file: Path, regions: Regions) -> None:
    assert regions.read((1, 1000, 70_000)).tobytes() == file.read_bytes()[1000:71_000]
    assert regions.read((1, 5, 0)).size == 0
    before = file.read_bytes()
    regions.write((1, 500, 40), "Y", np.arange(8, dtype=np.float32), 32)
    regions.write((1, 600, 4), "Y", memoryview(b"abcd"), 4)
    regions.write((1, 700, 0), "Y", np.empty((0, 3), np.int8), 0)
    after = file.read_bytes()
    assert after[500:532] == np.arange(8, dtype=np.float32).tobytes()
    assert after[600:604] == b"abcd"
    assert (after[:500], after[532:600], after[604:]) == (before[:500], before[532:600], before[604:])


def test_memory_is_trimmed_while_a_thread_reads(file: Path, regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "KEEP_S", 0)
    content, over = file.read_bytes(), threading.Event()

    def trim() -> None:
        while not over.is_set():
            regions.trim()

    trimmer = threading.Thread(target=trim)
    trimmer.start()
    try:
        for _ in range(500):
            parts = [regions.read((1, offset, 5000)) for offset in (0, 100, 200)]
            assert [part.tobytes() for part in parts] == [content[o : o + 5000] for o in (0, 100, 200)]
    finally:
        over.set()
        trimmer.join()


@pytest.mark.slow
def test_what_does_not_fit(file: Path, regions: Regions) -> None:
    text = "shared memory size specified with the request for output 'Y' (3 bytes) should be at least 4 bytes to hold"
    code, message = refused(regions, "write", (1, 0, 3), "Y", b"abcd", 4)
    assert (code, message.startswith(text)) == (ErrorCode.INTERNAL, True)
    os.truncate(file, 50)
    for act, arguments in (("read", ((1, 0, 51),)), ("write", ((1, 48, 8), "Y", b"abcd", 4))):
        code, message = refused(regions, act, *arguments)
        assert code == ErrorCode.INVALID_ARG
        assert "region 'r' is not as large as it was" in message
    assert file.stat().st_size == 50
    assert "named region 9" in refused(regions, "read", (9, 0, 1))[1]


def test_a_dropped_region_is_closed(file: Path) -> None:
    regions, descriptor = Regions(), os.open(file, os.O_RDWR)
    regions.add(7, "r", descriptor)
    regions.drop(7)
    regions.drop(7)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.fixture
def holey() -> Iterator[tuple[int, Regions]]:
    """A file in memory, of which the first part was written, and the process that was given it as region 1."""
    descriptor, made = os.memfd_create("holes"), Regions()
    os.pwrite(descriptor, b"x" * SIZE, 0)
    made.add(1, "r", os.dup(descriptor))
    yield descriptor, made
    made.drop(1)
    os.close(descriptor)
    # What tests were refused leads to the descriptor.
    gc.collect()


@pytest.mark.slow
@pytest.mark.parametrize("size", [SIZE, 4 * SIZE], ids=["whole", "with holes"])
def test_holes_stay_holes(monkeypatch: pytest.MonkeyPatch, holey: tuple[int, Regions], size: int) -> None:
    """Also those that come later, once the file is looked at again."""
    monkeypatch.setattr("naiad.worker.ipc.client_file.LOOKED_S", -1.0)
    descriptor, regions = holey
    os.ftruncate(descriptor, size)
    assert regions.read((1, 0, SIZE)).tobytes() == b"x" * SIZE
    for _ in range(2):
        os.ftruncate(descriptor, 0)
        os.ftruncate(descriptor, size)
        assert regions.read((1, 0, SIZE)).tobytes() == bytes(SIZE)
        assert os.fstat(descriptor).st_blocks == 0


@pytest.mark.slow
def test_what_is_not_looked_at_again_is_read_all_the_same(
    monkeypatch: pytest.MonkeyPatch, holey: tuple[int, Regions]
) -> None:
    monkeypatch.setattr("naiad.worker.ipc.client_file.LOOKED_S", 1000.0)
    descriptor, regions = holey
    assert regions.read((1, 0, SIZE)).tobytes() == b"x" * SIZE
    os.ftruncate(descriptor, 0)
    code, message = refused(regions, "read", (1, 0, SIZE))
    assert (code, "is not as large as it was" in message) == (ErrorCode.INVALID_ARG, True)
    os.ftruncate(descriptor, 2 * SIZE)
    os.pwrite(descriptor, b"y", SIZE)
    assert regions.read((1, 0, SIZE + 1)).tobytes() == bytes(SIZE) + b"y"
