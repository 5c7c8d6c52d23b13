"""Measuring the memory of models.

A model in processes of its own holds their memory (PSS, which divides shared pages among processes; resident memory
where the system does not report it). The memory of a process that several models share is divided among them evenly. A
model inside the server holds the growth of the server during its load, and at least the size of its files; only the
files count where other loads ran at the same time. Its framework is imported before, so that it does not count.
"""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from naiad.backend_api.backend import Backend
    from naiad.execution.model.interface import LoadedVersion

DEVICE: Final = "CPU"


class LoadMeter:
    """Measures one load; called in its thread, except for the constructor and ``close``."""

    __slots__ = ("_before", "_meters", "grown", "is_alone")

    def __init__(self, meters: set[LoadMeter]) -> None:
        self._meters = meters
        self._before = 0
        self.grown = 0
        self.is_alone = not meters
        # The server grows for both, and neither load can tell its part.
        for other in meters:
            other.is_alone = False
        meters.add(self)

    def begin(self, backend: Backend) -> None:
        """Start: the backend exists and has loaded nothing yet."""
        if backend.framework:
            try:
                importlib.import_module(backend.framework)
            except Exception:
                # The backend reports it with an error of its own.
                return
        self._before = resident_bytes()

    def end(self) -> None:
        """End: everything is loaded."""
        if self._before:
            self.grown = max(0, resident_bytes() - self._before)

    def close(self) -> None:
        """Forget the load, which is over; called on the event loop."""
        self._meters.discard(self)

    def held(self, processes: Mapping[int, int], files: int) -> int:
        """The bytes that the model holds, from the bytes of each of its processes and those of its files."""
        if processes:
            return sum(processes.values())
        return max(self.grown if self.is_alone else 0, files)


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory of a process, of this one without ``pid``; 0 when it is gone."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def process_bytes(pids: Iterable[int]) -> dict[int, int]:
    """The memory of each process; reads files, so it is called in a thread."""
    import psutil

    found: dict[int, int] = {}
    for pid in pids:
        try:
            full = psutil.Process(pid).memory_full_info()
        except psutil.NoSuchProcess:
            continue
        except psutil.Error:
            # The system does not report PSS, or not to this user.
            found[pid] = resident_bytes(pid)
        else:
            found[pid] = int(getattr(full, "pss", 0) or full.rss)
    return found


def shared_out(pids: Mapping[LoadedVersion, Iterable[int]], memory: Mapping[int, int]) -> dict[LoadedVersion, int]:
    """The share of each model in the memory of its processes, in bytes."""
    users = Counter(pid for found in pids.values() for pid in set(found))
    return {model: sum(memory.get(pid, 0) // users[pid] for pid in set(found)) for model, found in pids.items()}


def files_bytes(path: Path) -> int:
    """The size of a file, or of all files in a folder without linked folders; 0 for what cannot be read."""
    total = 0
    if path.is_file():
        try:
            return path.stat().st_size
        except OSError:
            return 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total
