"""Temporary folders that do not stay when the server is killed: the next server finds that nobody holds them.

A lock that the system gives back with its process tells which those are.
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
    """A new folder with a locked file in it, held for as long as this process lives or until it is let go.

    Args:
        prefix: what its name begins with.
        parent: where it is made; None for the system's folder of temporary files.

    Attributes:
        path: the folder.
        descriptor: of the locked file. A program that inherits it holds the folder, too.
    """

    __slots__ = ("descriptor", "path")

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # It gets its name once it is locked: unlocked it would look abandoned.
        unlocked = self.path / f"{_LOCK}.new"
        self.descriptor = os.open(unlocked, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        unlocked.rename(self.path / _LOCK)

    def let_go(self) -> None:
        """Give the lock back; the folder is to be removed before."""
        os.close(self.descriptor)


def abandoned_folders(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """The folders with names of ``prefix`` that nobody holds any more."""
    for path in (parent or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        if _is_abandoned(path):
            yield path


def _is_abandoned(path: Path) -> bool:
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        # Another user's, or so new that it is not locked yet.
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
