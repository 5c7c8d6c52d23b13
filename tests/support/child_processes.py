"""The children of a process that runs tests, and the test that left one behind."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil

# How long a module's processes may take to end, on a busy machine.
END_S = 10.0


def children() -> list[int]:
    """The numbers of this process's children, in ascending order, but for those that stay until all tests are done.

    Those are the servers that other tests share, and what Python itself starts with the first shared memory.
    """
    return [pid for pid in _all_children() if not _stays(pid)]


def _all_children() -> list[int]:
    # Much faster than to look at every process of the machine, which matters after each test.
    while True:
        threads = _threads()
        found: list[int] = []
        for thread in threads:
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
        # The children of a thread that ends become those of another one, which may have been looked at before.
        if threads <= _threads():
            return sorted(found)


def _threads() -> set[Path]:
    return set(Path("/proc/self/task").iterdir())


def _stays(pid: int) -> bool:
    command = _command(pid)
    return "serve" in command or any("multiprocessing.resource_tracker" in word for word in command)


def _command(pid: int) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).cmdline()
    return []


class LeftBehind:
    """Finds processes that outlast the module of tests that started them.

    A later test that counts its children would fail in place of the one that left a child.
    """

    def __init__(self) -> None:
        self._first_seen: dict[int, str] = {}

    def note(self, test: str) -> None:
        """Remember the children that are new after a test."""
        self._first_seen = {pid: self._first_seen.get(pid, test) for pid in children()}

    def since(self, before: set[int]) -> list[str]:
        """A line for each child that is not in ``before`` and does not end soon."""
        deadline = time.monotonic() + END_S
        while (left := set(children()) - before) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [f"{pid} {_command(pid)}, first seen after {self._first_seen.get(pid, '?')}" for pid in sorted(left)]
