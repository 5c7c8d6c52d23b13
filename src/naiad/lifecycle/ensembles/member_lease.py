"""Leases on the members of ensembles, which stay while their ensemble is loaded. Used on the event loop only.

Under a memory budget one ensemble is loaded after the other: two that hold some of their members would wait for each
other's memory. An ensemble that the running load waits for does not wait for its turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from naiad.lifecycle.state.wait_graph import OperationsOn, Residence

if TYPE_CHECKING:
    from naiad.lifecycle.state.operations import Operation
    from naiad.lifecycle.state.wait_graph import WaitGraph


class _Lease:
    """The lease of one version of an ensemble; ``begins`` is set when its turn has come."""

    __slots__ = ("begins", "edges", "members", "operation")

    def __init__(self, operation: Operation, members: Iterable[str]) -> None:
        self.operation = operation
        self.members = set(members)
        self.begins = asyncio.Event()
        self.edges = ExitStack()


class MemberLeases:
    """The leases of all ensembles that are being loaded.

    Args:
        in_turn: one ensemble is loaded after the other.
        within: the members of an ensemble that serves, those of its members included; none for other models.
        graph: gets the edges of leases and of ensembles that wait for their turn.
    """

    def __init__(self, in_turn: bool, within: Callable[[str], Collection[str]], graph: WaitGraph) -> None:
        self._in_turn = in_turn
        self._within = within
        self._graph = graph
        self._running: list[_Lease] = []
        self._waiting: deque[_Lease] = deque()

    @asynccontextmanager
    async def holding(self, operation: Operation, members: Iterable[str]) -> AsyncIterator[None]:
        """Hold the members of the ensemble that ``operation`` loads; waits for its turn first."""
        lease = _Lease(operation, members)
        self._waiting.append(lease)
        self._begin()
        try:
            if not lease.begins.is_set():
                lease.edges.enter_context(self._graph.noting(operation, self))
                await lease.begins.wait()
            yield
        finally:
            # A load may be cancelled before its turn.
            (self._running if lease.begins.is_set() else self._waiting).remove(lease)
            lease.edges.close()
            self._begin()

    def holds(self, name: str) -> bool:
        """Whether a model is a member of an ensemble that is being loaded, or a member of such a member."""
        return any(name in lease.members for lease in self._running)

    def extend(self, ensemble: str, members: Iterable[str]) -> None:
        """Extend the leases on an ensemble, which was just loaded, to its members."""
        found = set(members)
        for lease in self._running:
            if ensemble in lease.members:
                self._add_members(lease, found - lease.members)

    def _add_members(self, lease: _Lease, members: Iterable[str]) -> None:
        found = {*members}.union(*map(self._within, members))
        lease.members |= found
        for name in found:
            lease.edges.enter_context(self._graph.noting(Residence(name), lease.operation))
            lease.edges.enter_context(self._graph.noting(lease.operation, OperationsOn(name)))

    def _begin(self) -> None:
        """Begin all leases that may; each may admit further ones, of ensembles that it waits for."""
        while lease := next(filter(self._may_begin, self._waiting), None):
            self._waiting.remove(lease)
            self._running.append(lease)
            # Now, and not when its task resumes: the graph must not show a wait that is over.
            lease.edges.close()
            lease.edges.enter_context(self._graph.noting(self, lease.operation))
            self._add_members(lease, set(lease.members))
            lease.begins.set()

    def _may_begin(self, lease: _Lease) -> bool:
        if not (self._in_turn and self._running):
            return True
        return any(self._graph.reaches(other.operation, lease.operation) for other in self._running)
