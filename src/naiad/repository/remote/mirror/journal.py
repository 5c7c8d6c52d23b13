"""A journal of the parts of a partial file that are written, with which an interrupted transfer resumes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final, Self

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Journal:
    """A file with one line for each part that is written; used by several threads.

    Parts that were written before the machine's last start do not count: the disk may have lost them.

    Args:
        path: the journal's file.
        about: the size of the file and of its parts; a journal about another file does not count.

    Attributes:
        done: the offsets, in bytes, at which the written parts begin.
    """

    def __init__(self, path: Path, about: str) -> None:
        self.done: set[int] = set()
        self._path = path
        self._head = f"{about} {_boot()}"
        self._lock = threading.Lock()
        # O_APPEND: once ``restart`` has cut the file, lines go to its new end.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o644)
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def add(self, start: int) -> None:
        """Record that the part at ``start`` is written."""
        with self._lock:
            os.write(self._descriptor, f"{start}\n".encode())
            self.done.add(start)

    def restart(self) -> None:
        """Forget all parts."""
        with self._lock:
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{self._head}\n".encode())
            self.done.clear()

    def remove(self) -> None:
        """Remove the journal of a complete file."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> None:
        # The last line may be cut off, and half a number would be another part.
        lines = self._path.read_text("utf-8", "replace").split("\n")[:-1]
        if lines and lines[0] == self._head:
            self.done.update(int(line) for line in lines[1:] if line.isdigit())


def _boot() -> str:
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""
