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
        """From now on ``check`` raises."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether there is any use in going on."""
        return self._event.is_set() or (self._above is not None and self._above.is_set())

    def check(self) -> None:
        """Raise when there is no use in going on.

        Raises:
            StoreError: the transfer was given up.
        """
        if self.is_set():
            raise StoreError("the transfer was given up, since the server ends or another part of it failed")

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than there is any use in it."""
        self._event.wait(seconds)
        self.check()


def in_threads(jobs: Iterable[_T], work: Callable[[_T, Halt], None], count: int, halt: Halt) -> None:
    """Call ``work`` with each job, up to ``count`` at the same time; the first that fails ends the others.

    The threads do not hold up the end of the process. ``work`` is given the halt that it should look at.
    """
    waiting = list(reversed(list(jobs)))
    if len(waiting) == 1:
        work(waiting[0], halt)
        return
    errors: list[BaseException] = []
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
    halt.check()
