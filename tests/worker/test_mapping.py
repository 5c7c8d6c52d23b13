"""Mapped files: shared, and without a descriptor that stays open."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from naiad.worker.ipc.mmap import mapped
from naiad.worker.ipc.segments import SegmentPool, ServerSegments, anonymous_file

SIZE = 1 << 16


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mappings(of: str) -> int:
    return sum(of in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mapped-here"
    path.write_bytes(bytes(SIZE))
    return path


def test_what_is_written_on_one_side_is_read_on_the_other(file: Path) -> None:
    with file.open("r+b") as opened:
        one, other = mapped(opened.fileno(), SIZE), mapped(opened.fileno(), SIZE)
    one[:3] = 1, 2, 3
    assert (one.shape, one.dtype, other[:4].tolist()) == ((SIZE,), np.uint8, [1, 2, 3, 0])


def test_a_mapping_lives_as_long_as_an_array_refers_to_it(file: Path) -> None:
    with file.open("r+b") as opened:
        array = mapped(opened.fileno(), SIZE)
    part = np.frombuffer(memoryview(array)[4096:8192], np.float32)
    del array
    assert mappings(str(file)) == 1
    assert part.sum() == 0
    del part
    assert mappings(str(file)) == 0


def test_what_cannot_be_mapped_is_an_error(file: Path) -> None:
    with file.open("rb") as opened, pytest.raises(OSError, match=r"65536 bytes cannot be mapped: Permission denied"):
        mapped(opened.fileno(), SIZE)


def test_segments_of_both_sides_cost_no_descriptor_once_they_are_known() -> None:
    before = descriptors()
    pool, theirs = SegmentPool(), ServerSegments(lambda number: None)
    segments = [pool.take(SIZE) for _ in range(50)]
    for segment in segments:
        theirs.add(segment.number, os.dup(segment.descriptor), SIZE)
        segment.close_descriptor()
        segment.bytes[0] = segment.number
    assert [int(theirs.open(s.number, 0, 1)[0]) for s in segments] == [s.number for s in segments]
    assert descriptors() == before


def test_a_segment_that_cannot_be_mapped_leaves_no_descriptor() -> None:
    before = descriptors()
    descriptor = anonymous_file(SIZE)
    read_only = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    os.close(descriptor)
    with pytest.raises(OSError, match="cannot be mapped"):
        ServerSegments(lambda number: None).add(1, read_only, SIZE)
    assert descriptors() == before
