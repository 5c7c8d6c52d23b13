"""Models that are needed together: the members of an ensemble stay while it is loaded. Used on the event loop only.

Under a budget for memory one ensemble is loaded after the other. Two that hold the members that they have already would
otherwise wait for each other's memory. One that is a member of an ensemble that is being loaded is part of that load.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager


class _Load:
    """The load of one version of an ensemble; ``begins`` is set when it may hold its members."""

    __slots__ = ("begins", "members", "name")

    def __init__(self, name: str, members: frozenset[str]) -> None:
        self.name = name
        self.members = members
        self.begins = asyncio.Event()


class MemberLeases:
    """The ensembles that are being loaded, and what they hold.

    Args:
        in_turn: one waits for the other.
        within: the models that a model which serves is made of.
    """

    def __init__(self, in_turn: bool, within: Callable[[str], Collection[str]]) -> None:
        self._in_turn = in_turn
        self._within = within
        self._running: list[_Load] = []
        self._waiting: deque[_Load] = deque()

    @asynccontextmanager
    async def holding(self, name: str, members: Iterable[str]) -> AsyncIterator[None]:
        """Hold the members of the ensemble ``name``; waits for its turn first."""
        load = _Load(name, frozenset(members))
        self._waiting.append(load)
        self._begin()
        try:
            await load.begins.wait()
            yield
        finally:
            (self._running if load.begins.is_set() else self._waiting).remove(load)
            self._begin()

    def holds(self, name: str) -> bool:
        """A model is a member of what is being loaded, or a member of such a member."""
        return any(
            name in load.members or any(name in self._within(member) for member in load.members)
            for load in self._running
        )

    def waits_for(self, name: str, other: str) -> bool:
        """The load of a model, or what it holds, is needed until one that ``other`` is part of is over.

        It is part of one as well, or the load of an ensemble that waits for its turn.
        """
        return self._is_part(other) and (self._is_part(name) or any(name == load.name for load in self._waiting))

    def _is_part(self, name: str) -> bool:
        """A model is such a member, or such an ensemble itself."""
        return any(name == load.name for load in self._running) or self.holds(name)

    def _begin(self) -> None:
        """Let those begin that may; each may bring others in."""
        while load := next(filter(self._may_begin, self._waiting), None):
            self._waiting.remove(load)
            self._running.append(load)
            load.begins.set()

    def _may_begin(self, load: _Load) -> bool:
        return not (self._in_turn and self._running) or self._is_part(load.name)
