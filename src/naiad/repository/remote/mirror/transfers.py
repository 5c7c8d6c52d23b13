"""The threads of one transfer: they begin with it and end with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from naiad.errors import StoreError

_T = TypeVar("_T")


class Halt:
    """Ends transfers early: all transfers of a mirror, or the other parts of one that failed."""

    def __init__(self, above: Halt | None = None) -> None:
        self._above = above
        self._event = threading.Event()

    def set(self) -> None:
        """End the transfers: ``check`` raises from now on."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether the transfer was ended."""
        return self._event.is_set() or (self._above is not None and self._above.is_set())

    def check(self) -> None:
        """Raise when the transfer was ended.

        Raises:
            StoreError: the server ends, or another part of the transfer failed.
        """
        if self.is_set():
            raise StoreError("the transfer was given up, since the server ends or another part of it failed")

    def pause(self, seconds: float) -> None:
        """Wait, or raise as ``check`` when the transfer was ended."""
        self._event.wait(seconds)
        self.check()


def in_threads(jobs: Iterable[_T], work: Callable[[_T, Halt], None], count: int, halt: Halt) -> None:
    """Call ``work`` with each job, up to ``count`` at the same time; the first that fails ends the others.

    The threads are daemons, so the process can end meanwhile. ``work`` gets the halt that it must check.
    """
    # Reversed, since ``pop`` takes from the end. It is one step under the interpreter's lock, so it needs no other.
    waiting = list(reversed(list(jobs)))
    if len(waiting) == 1:
        work(waiting[0], halt)
        return
    errors: list[BaseException] = []
    # A failure ends the other jobs of this call, not those of the whole mirror.
    inner = Halt(halt)

    def run() -> None:
        while waiting and not inner.is_set():
            try:
                job = waiting.pop()
            except IndexError:
                return
            try:
                work(job, inner)
            except BaseException as error:
                errors.append(error)
                inner.set()

    threads = [threading.Thread(target=run, name="naiad-mirror", daemon=True) for _ in range(min(count, len(waiting)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        inner.set()
        raise
    if errors:
        raise errors[0]
    # A halt from above ends the threads without an error of their own.
    halt.check()
