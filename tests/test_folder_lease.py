"""Folders of processes that were killed are told from those that are in use."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from naiad.folder_lease import FolderLease, abandoned_folders

PREFIX = "trial-"
KILLED = """
import os, signal, sys
from pathlib import Path
from naiad.folder_lease import FolderLease
print(FolderLease("trial-", Path(sys.argv[1])).path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def abandoned(parent: Path) -> list[Path]:
    return list(abandoned_folders(PREFIX, parent))


def age(folder: Path) -> None:
    """Let it look as though it was made two minutes ago."""
    then = time.time() - 120
    os.utime(folder, (then, then))


def test_a_folder_in_use_is_not_abandoned_and_that_of_a_killed_process_is(tmp_path: Path) -> None:
    lease = FolderLease(PREFIX, tmp_path)
    age(lease.path)
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True, check=False)
    assert abandoned(tmp_path) == [Path(killed.stdout.strip())]
    lease.release()
    assert len(abandoned(tmp_path)) == 2


@pytest.mark.parametrize("made", [[], [".in-use.new"]])
def test_a_process_killed_before_it_had_the_lock_leaves_an_abandoned_folder(tmp_path: Path, made: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=tmp_path))
    for name in made:
        (folder / name).touch()
    # Its process may still be on its way to the lock.
    assert abandoned(tmp_path) == []
    age(folder)
    assert abandoned(tmp_path) == [folder]


def test_what_is_no_folder_of_a_lease_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{PREFIX}file").touch()
    full = tmp_path / f"{PREFIX}full"
    full.mkdir()
    (full / "notes.txt").touch()
    for path in (tmp_path / "elsewhere", tmp_path / f"{PREFIX}file", full):
        age(path)
    assert abandoned(tmp_path) == []
