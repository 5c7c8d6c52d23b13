"""Locks between the servers that share a mirror. The system releases them when a server dies."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from naiad.repository.remote.mirror.transfers import Halt

_PAUSE_S: Final = 0.05


class FolderLock:
    """A lock held by many processes that add to a folder, or by one that removes from it.

    Args:
        path: the lock's file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def shared(self, halt: Halt | None = None) -> Iterator[None]:
        """Hold the lock to add: nothing is removed meanwhile. Waits while another process removes."""
        descriptor = self._open()
        try:
            while not _try(descriptor, fcntl.LOCK_SH):
                # Not a blocking flock: the end of the server must be able to end the wait.
                (halt or Halt()).pause(_PAUSE_S)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def exclusive(self) -> Iterator[bool]:
        """Try to hold the lock to remove, without waiting; whether that succeeded."""
        descriptor = self._open()
        try:
            yield _try(descriptor, fcntl.LOCK_EX)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


class Users:
    """The folders in use, by this process and by others.

    Each process has a file with the names of the folders that it uses, and locks this file for as long as it lives.
    The caller holds the folder's lock.

    Args:
        folder: the folder of these files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f"{os.getpid()}-{uuid.uuid4().hex}.json"
        self._names: Counter[str] = Counter()
        self._descriptor = -1
        self._lock = threading.Lock()

    def add(self, name: str) -> None:
        """Count one more use of ``name`` by this process."""
        with self._lock:
            self._names[name] += 1
            self._write()

    def remove(self, name: str) -> None:
        """Count one use of ``name`` less by this process."""
        with self._lock:
            if self._names[name] > 1:
                self._names[name] -= 1
                return
            del self._names[name]
            if self._descriptor >= 0:
                self._write()

    def taken(self) -> set[str]:
        """The names that any live process uses. Files of dead processes are removed."""
        names: set[str] = set()
        for path in list(self._folder.glob("*.json")):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                # Its process has just ended.
                continue
            try:
                # This process's own file is locked through another descriptor, so it counts as used here, too.
                if _try(descriptor, fcntl.LOCK_EX):
                    path.unlink(missing_ok=True)
                else:
                    names.update(json.loads(path.read_bytes() or b"[]"))
            finally:
                os.close(descriptor)
        return names

    def close(self) -> None:
        """End all uses by this process."""
        with self._lock:
            self._names.clear()
            if self._descriptor >= 0:
                self._path.unlink(missing_ok=True)
                os.close(self._descriptor)
                self._descriptor = -1

    def _write(self) -> None:
        if self._descriptor < 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        text = json.dumps(list(self._names)).encode()
        # In place: a new file under this name would not be locked. Readers hold the mirror's lock alone.
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
