"""Temporary folders that a killed server leaves behind and that the next server can recognise and remove.

Each folder has a file that its process keeps locked. The system releases the lock when the process ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR
from time import time
from typing import Final

_LOCK: Final = ".in-use"
_UNLOCKED: Final = f"{_LOCK}.new"
_MAKING_S: Final = 60.0
"""Seconds that a process may take to lock its new folder. Killed meanwhile, it leaves the folder without content."""


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
        unlocked = self.path / _UNLOCKED
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
    except FileNotFoundError:
        return _was_never_locked(path)
    except OSError:
        # Another user's.
        return False
    try:
        # The lock is released below, so two servers may remove the same folder: neither minds that a file is gone.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _was_never_locked(path: Path) -> bool:
    try:
        found = path.lstat()
        return (
            S_ISDIR(found.st_mode)
            and found.st_uid == os.getuid()
            and time() - found.st_mtime > _MAKING_S
            and set(os.listdir(path)) <= {_UNLOCKED}
        )
    except OSError:
        # Its process has released it.
        return False
