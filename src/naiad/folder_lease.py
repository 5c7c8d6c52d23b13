"""Temporary folders that a killed server leaves behind and that the next server can recognise and remove.

Each folder has a file that its process keeps locked. The system releases the lock when the process ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LOCK: Final = ".in-use"


class FolderLease:
    """A new folder with a locked file in it, leased until this process ends or the lease is released.

    Args:
        prefix: the beginning of the folder's name.
        parent: the parent folder; None for the system's folder of temporary files.

    Attributes:
        path: the folder.
        descriptor: the descriptor of the locked file. A program that inherits it holds the lease, too.
    """

    __slots__ = ("descriptor", "path")

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # It gets its name once it is locked: unlocked it would look abandoned.
        unlocked = self.path / f"{_LOCK}.new"
        self.descriptor = os.open(unlocked, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        unlocked.rename(self.path / _LOCK)

    def release(self) -> None:
        """Release the lock. Remove the folder before."""
        os.close(self.descriptor)


def abandoned_folders(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """The folders with names of ``prefix`` whose lease has ended."""
    for path in (parent or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        if _is_abandoned(path):
            yield path


def _is_abandoned(path: Path) -> bool:
    try:
        # Anybody may write to the folder of temporary files: a link must not lead to another file.
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        # Another user's, or so new that it is not locked yet.
        return False
    try:
        # The lock is released below, so two servers may remove the same folder: neither minds that a file is gone.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
