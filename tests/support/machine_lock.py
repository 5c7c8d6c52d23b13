"""A lock on the machine: shared by tests that run side by side, exclusive for one that is marked ``serial``."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class MachineLock:
    """A fair shared/exclusive lock of the processes of one test run, kept in two files in ``folder``.

    An operating system's lock ends with the process that holds it, so a process that dies blocks nobody.
    """

    def __init__(self, folder: Path) -> None:
        self._gate = os.open(folder / "gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def held(self, exclusive: bool) -> Iterator[None]:
        """Wait for the lock and hold it. An exclusive holder waits until all others have released it."""
        # Whoever waits for the lock holds the gate, so later tests queue behind an exclusive one and cannot starve it.
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files."""
        os.close(self._gate)
        os.close(self._lock)
