"""Where tests run side by side: many at a time, or one that is marked ``serial``."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Room:
    """A lock that the processes of one test run share through two files in ``folder``.

    An operating system's lock ends with the process that holds it, so a process that dies blocks nobody.
    """

    def __init__(self, folder: Path) -> None:
        self._door = os.open(folder / "door", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._inside = os.open(folder / "inside", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def entered(self, alone: bool) -> Iterator[None]:
        """Wait for a place; ``alone``: until all others have left, and nobody enters meanwhile."""
        # Whoever waits inside the door keeps new ones out, so a test that runs alone is not passed over forever.
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._inside, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._inside, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files."""
        os.close(self._door)
        os.close(self._inside)
