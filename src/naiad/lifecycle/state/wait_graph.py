"""The wait-for graph of loads and unloads: one place that knows which of them waits for what.

Loads wait for each other in several ways at once. Whoever is about to wait adds an edge for as long as it does, so that
a wait that would never end is found when its edge is added, or before. The edges, with their owners:

- ``OperationsOn(b)`` waits for each operation on the model ``b`` that runs or is queued (``Operations``).
- An operation waits for ``OperationsOn(b)`` while its model, which loads, has requested an operation on ``b``
  (``Operations``), and while it loads an ensemble with the member ``b`` (``MemberLeases``).
- ``Residence(b)`` waits for an operation that loads an ensemble with the member ``b``, which must stay
  (``MemberLeases``).
- ``Residence(b)`` waits for ``OperationsOn(c)`` while a call of ``b`` waits for the model ``c``, and for
  ``OperationsOn(b)`` while requests wait for ``b`` (``LoadOnDemand``).
- ``RequestsInFlight(b)`` waits for ``OperationsOn(c)`` while a call of ``b`` waits for the model ``c``
  (``LoadOnDemand``). A draining model must no longer stay, but it is not gone before its requests in flight have ended.
- An operation waits for the turn of ensembles or the line for memory, and the line or the turn for the operations that
  have it (``MemberLeases``, ``WaitingLine``).

A load that needs memory waits for any one of several models to go, not for all of them. Such a wait has no edge: the
load looks for a model whose residence does not wait for the load itself, and then waits for the next change.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


class WaitCycleError(Exception):
    """The awaited node waits for the waiter already."""


@dataclass(frozen=True, slots=True)
class OperationsOn:
    """The operations on the model ``name``, those that come later included."""

    name: str


@dataclass(frozen=True, slots=True)
class Residence:
    """The time for which the model ``name`` must stay loaded. It has edges only while the model must stay."""

    name: str


@dataclass(frozen=True, slots=True)
class RequestsInFlight:
    """The requests that the model ``name`` works on. It has edges only while one of them waits for a call."""

    name: str


class WaitGraph:
    """Edges from waiters to what they wait for; an edge may be added several times. Used on the event loop only."""

    def __init__(self) -> None:
        self._awaited: dict[Hashable, Counter[Hashable]] = {}
        self._waiters: dict[Hashable, Counter[Hashable]] = {}
        self._changed = asyncio.Event()

    @contextmanager
    def waiting(self, waiter: Hashable, awaited: Hashable) -> Iterator[None]:
        """Hold an edge inside the context.

        Raises:
            WaitCycleError: the wait would never end.
        """
        if self.reaches(awaited, waiter):
            raise WaitCycleError
        with self.noting(waiter, awaited):
            yield

    @contextmanager
    def noting(self, waiter: Hashable, awaited: Hashable) -> Iterator[None]:
        """Hold an edge inside the context, for a wait whose cycles are found by others."""
        self.add(waiter, awaited)
        try:
            yield
        finally:
            self.remove(waiter, awaited)

    def add(self, waiter: Hashable, awaited: Hashable) -> None:
        """Add an edge, for a wait that ends in another call; each needs its ``remove``."""
        found = self._awaited.setdefault(waiter, Counter())
        found[awaited] += 1
        # The first of equal edges alone changes who waits for whom, so it alone wakes others.
        if found[awaited] == 1:
            self._waiters.setdefault(awaited, Counter())[waiter] += 1
            self.notify()

    def remove(self, waiter: Hashable, awaited: Hashable) -> None:
        """Remove an edge."""
        found = self._awaited[waiter]
        found[awaited] -= 1
        if not found[awaited]:
            _drop(self._awaited, waiter, awaited)
            _drop(self._waiters, awaited, waiter)
            self.notify()

    def awaited_by(self, waiter: Hashable) -> Iterable[Hashable]:
        """What a node waits for directly."""
        return self._awaited.get(waiter, ())

    def waiters_of(self, awaited: Hashable) -> Iterable[Hashable]:
        """The nodes that wait for a node directly."""
        return self._waiters.get(awaited, ())

    def residences(self) -> set[str]:
        """The models that must stay."""
        return {node.name for node in self._awaited if isinstance(node, Residence)}

    def reaches(self, waiter: Hashable, awaited: Hashable) -> bool:
        """Whether ``waiter`` ends only after ``awaited`` has ended; a node reaches itself."""
        seen: set[Hashable] = set()
        waiting = [waiter]
        while waiting:
            node = waiting.pop()
            if node == awaited:
                return True
            if node not in seen:
                seen.add(node)
                waiting += self.awaited_by(node)
        return False

    def notify(self) -> None:
        """Wake all that wait in ``change``: an edge, or something else that a wait depends on, has changed."""
        self._changed.set()
        # Another event, so that whoever waits from now on waits for the next change.
        self._changed = asyncio.Event()

    async def change(self, timeout_s: float | None = None) -> None:
        """Wait for the next change, at most for ``timeout_s`` seconds."""
        # Taken before the first suspension: a change that comes then is not missed.
        changed = self._changed
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await changed.wait()


def _drop(edges: dict[Hashable, Counter[Hashable]], start: Hashable, end: Hashable) -> None:
    del edges[start][end]
    if not edges[start]:
        del edges[start]
