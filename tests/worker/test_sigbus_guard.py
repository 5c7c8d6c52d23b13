"""Memory of somebody else who truncates it: copies end with an error, everything else is as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from naiad.worker.ipc import client_file as client_files
from naiad.worker.ipc import client_memory as regions
from naiad.worker.ipc import sigbus_guard as guarded
from naiad.worker.ipc.client_file import RegionError
from naiad.worker.ipc.client_memory import Regions
from naiad.worker.ipc.sigbus_guard import FileEndedError, GuardedMapping

PAGES = 16
SIZE = PAGES * os.sysconf("SC_PAGE_SIZE")
CONTENT = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)
needs_mapping = pytest.mark.skipif(guarded.mapping_of is None, reason="this system has no guarded mappings")

DIES = """
import mmap, os, signal, sys
import numpy as np
from naiad.worker.ipc.sigbus_guard import FileEndedError, GuardedMapping

descriptor = os.open(sys.argv[1], os.O_RDWR)
size = os.fstat(descriptor).st_size
mapping, own = GuardedMapping(descriptor, size), mmap.mmap(descriptor, size)
if sys.argv[2] == "handled":
    signal.signal(signal.SIGBUS, lambda number, frame: print("its own handler", flush=True))
os.truncate(descriptor, 0)
try:
    mapping.read_into(np.empty(size, np.uint8), 0)
except FileEndedError:
    print("ended", flush=True)
if sys.argv[2] == "handled":
    os.kill(os.getpid(), signal.SIGBUS)
else:
    own[0]
"""


@pytest.fixture
def file() -> Iterator[Path]:
    path = Path(f"/dev/shm/naiad-test-guarded-{os.getpid()}")
    path.write_bytes(CONTENT.tobytes())
    yield path
    path.unlink()


@pytest.fixture
def opened(file: Path) -> Iterator[Regions]:
    made = Regions()
    made.add(1, "r", os.open(file, os.O_RDWR))
    yield made
    made.drop(1)


def is_mapped(file: Path) -> bool:
    return str(file) in Path("/proc/self/maps").read_text()


@needs_mapping
def test_a_mapping_reads_and_writes(file: Path) -> None:
    with file.open("r+b") as handle:
        mapping = GuardedMapping(handle.fileno(), SIZE)
    found = np.empty(5000, np.uint8)
    mapping.read_into(found, 100)
    assert np.array_equal(found, CONTENT[100:5100])
    mapping.write(found, 7000)
    assert file.read_bytes()[7000:12_000] == found.tobytes()
    assert file.read_bytes()[12_000:] == CONTENT[12_000:].tobytes()
    del mapping
    assert not is_mapped(file)


@needs_mapping
@pytest.mark.parametrize("act", ["read_into", "write"])
@pytest.mark.parametrize("left", [0, 1, PAGES // 2])
def test_a_file_that_ends_during_a_copy_is_an_error(file: Path, act: str, left: int) -> None:
    with file.open("r+b") as handle:
        mapping, other = GuardedMapping(handle.fileno(), SIZE), GuardedMapping(handle.fileno(), SIZE)
    data = np.zeros(SIZE, np.uint8)
    os.truncate(file, left * SIZE // PAGES)
    for mapped in (mapping, other):
        with pytest.raises(FileEndedError):
            getattr(mapped, act)(data, 0)
    assert file.stat().st_size == left * SIZE // PAGES


@needs_mapping
@pytest.mark.parametrize("kind", ["plain", "handled"])
def test_other_errors_of_this_kind_are_what_they_were(file: Path, kind: str) -> None:
    command = [sys.executable, "-c", DIES, str(file), kind]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if kind == "plain":
        assert (ended.returncode, ended.stdout) == (-7, "ended\n"), ended.stderr
    else:
        assert (ended.returncode, ended.stdout) == (0, "ended\nits own handler\n"), ended.stderr


@pytest.mark.parametrize("most", [regions.MAPPED_BYTES, SIZE - 1])
def test_what_may_not_be_mapped_is_read_and_written(
    file: Path, opened: Regions, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "MAPPED_BYTES", most)
    assert np.array_equal(opened.read((1, 10, SIZE - 10)), CONTENT[10:])
    opened.write((1, 0, 100), "Y", np.arange(25, dtype=np.float32), 100)
    assert np.array_equal(np.frombuffer(file.read_bytes()[:100], np.float32), np.arange(25))
    assert is_mapped(file) == (most >= SIZE and guarded.mapping_of is not None)


def test_a_file_that_nobody_needs_is_unmapped(file: Path, opened: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.read((1, 0, SIZE))
    opened.trim()
    assert is_mapped(file) == (guarded.mapping_of is not None)
    monkeypatch.setattr(client_files, "KEEP_MAPPED_S", -1.0)
    opened.trim()
    assert not is_mapped(file)
    assert np.array_equal(opened.read((1, 0, SIZE)), CONTENT)
    opened.drop(1)
    assert not is_mapped(file)


def test_a_file_that_grows_is_mapped_anew(file: Path, opened: Regions) -> None:
    opened.read((1, 0, SIZE))
    file.write_bytes(2 * CONTENT.tobytes())
    assert np.array_equal(opened.read((1, SIZE - 5, SIZE)), np.concatenate([CONTENT, CONTENT])[SIZE - 5 : 2 * SIZE - 5])


def test_reading_holes_takes_no_memory(file: Path, opened: Regions) -> None:
    os.truncate(file, 0)
    os.truncate(file, SIZE)
    assert not opened.read((1, 0, SIZE)).any()
    assert file.stat().st_blocks == 0
    with file.open("r+b") as handle:
        handle.write(CONTENT[: SIZE // 2].tobytes())
    taken = file.stat().st_blocks
    assert np.array_equal(opened.read((1, 0, SIZE))[: SIZE // 2], CONTENT[: SIZE // 2])
    assert file.stat().st_blocks == taken
    assert np.array_equal(opened.read((1, 0, SIZE // 2)), CONTENT[: SIZE // 2])


@pytest.mark.slow
def test_a_file_that_is_truncated_all_the_time(file: Path, opened: Regions) -> None:
    """From several threads, while another process shortens the file and writes it again: right or refused."""
    source = "import os, sys\nfd = os.open(sys.argv[1], os.O_RDWR)\ndata = os.pread(fd, 1 << 30, 0)\n"
    source += "while True:\n    for n in (0, 100, len(data) // 2):\n"
    source += "        os.ftruncate(fd, n)\n        os.ftruncate(fd, len(data))\n        os.pwrite(fd, data, 0)\n"
    # All bytes are alike, so that what is written cannot be told from what is restored.
    file.write_bytes(b"\1" * SIZE)
    attacker = subprocess.Popen([sys.executable, "-c", source, str(file)])
    outcomes: list[str] = []

    def copy() -> None:
        for _ in range(300):
            try:
                found = opened.read((1, 0, SIZE))
                # Holes that were there for a moment are zeros.
                assert set(np.unique(found)) <= {0, 1}
                opened.write((1, 0, SIZE), "Y", np.full(SIZE, 1, np.uint8), SIZE)
                outcomes.append("")
            except RegionError as error:
                outcomes.append(error.caller_error.message())

    threads = [threading.Thread(target=copy) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        attacker.kill()
        attacker.wait()
    assert len(outcomes) == 900
    assert all("is not as large as it was" in text for text in outcomes if text)
