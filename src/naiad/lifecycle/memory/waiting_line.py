"""The line in which loads wait for memory, one after the other. Loads that others wait for pass it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from naiad.lifecycle.state.operations import Operation
    from naiad.lifecycle.state.wait_graph import WaitGraph


class WaitingLine:
    """The first has its turn until it leaves; the others wait in their order. Used on the event loop only."""

    def __init__(self, graph: WaitGraph) -> None:
        self._graph = graph
        self._places: dict[Operation, None] = {}
        self._first: Operation | None = None
        # Those without a turn, each with its ``may_pass`` and an edge to the line.
        self._waiting: dict[Operation, Callable[[], bool]] = {}

    @asynccontextmanager
    async def turn(self, operation: Operation, may_pass: Callable[[], bool]) -> AsyncIterator[None]:
        """Wait until all that came before have left, or until ``may_pass`` says that this one need not wait for them.

        The first may wait for memory of a model that stays for this one: in line they would wait for each other.

        Raises:
            ModelLoadError: the operation is not wanted any more.
        """
        self._places[operation] = None
        self._waiting[operation] = may_pass
        self._graph.add(operation, self)
        self._move_up()
        try:
            while operation in self._waiting:
                operation.check_wanted()
                self._let_pass(operation)
                if operation in self._waiting:
                    await self._graph.change()
            yield
        finally:
            if operation in self._waiting:
                self._give_turn(operation)
            del self._places[operation]
            self._move_up()

    def let_pass(self) -> None:
        """Give all that may pass their turn, before they notice it themselves: they do not wait for the first."""
        for operation in list(self._waiting):
            self._let_pass(operation)

    def _let_pass(self, operation: Operation) -> None:
        if operation is self._first or self._waiting[operation]():
            self._give_turn(operation)

    def _give_turn(self, operation: Operation) -> None:
        del self._waiting[operation]
        self._graph.remove(operation, self)

    def _move_up(self) -> None:
        """Let the line wait for the operation that is first now."""
        first = next(iter(self._places), None)
        if first is self._first:
            return
        if self._first is not None:
            self._graph.remove(self, self._first)
        self._first = first
        if first is not None:
            if first in self._waiting:
                self._give_turn(first)
            self._graph.add(self, first)
