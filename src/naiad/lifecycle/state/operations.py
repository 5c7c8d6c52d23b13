"""One operation per model at a time: loads and unloads of a model take their turns in the order in which they came.

A model that loads may request other operations and wait for them. An operation that could never get its turn is refused
(``wait_graph``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager
from typing import Final

from naiad.errors import InvalidArgumentError, ModelLoadError, ServerStoppingError, UnavailableError
from naiad.lifecycle.state.wait_graph import OperationsOn, WaitCycleError, WaitGraph

MAX_WAITING: Final = 64
"""How many operations of one model may be queued before another request is refused."""
MAX_REQUESTED: Final = 1024
"""How many requested operations of all models may run and be queued."""


class WaitsForItselfError(InvalidArgumentError):
    """A model that loads requested an operation that could only begin once it is loaded."""


class Operation:
    """A load or an unload of one model, from its request to its end.

    Attributes:
        is_requested: a caller or a model requested it; the server began it by itself otherwise.
        is_awaited: a request to a model cannot go on before it is over.
        not_wanted: why its result is not needed any more, "" while it is. Read in loading threads.
    """

    __slots__ = ("is_awaited", "is_first", "is_requested", "name", "not_wanted")

    def __init__(self, name: str, is_requested: bool = True) -> None:
        self.name = name
        self.is_requested = is_requested
        self.is_awaited = False
        self.not_wanted = ""
        self.is_first = asyncio.Event()

    def check_wanted(self) -> None:
        """Check that its result is still needed.

        Raises:
            ModelLoadError: it is not.
        """
        if self.not_wanted:
            raise ModelLoadError(f"the operation on model '{self.name}' was given up: {self.not_wanted}")


class Operations:
    """All operations that run or are queued, by model. Used on the event loop only.

    Attributes:
        graph: what waits for what.
    """

    def __init__(self, graph: WaitGraph | None = None) -> None:
        self.graph = graph or WaitGraph()
        self._queues: dict[str, deque[Operation]] = {}
        self._requested = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False

    @asynccontextmanager
    async def turn(
        self, name: str, asker: Operation | None = None, undoes: bool = False, is_requested: bool = True
    ) -> AsyncIterator[Operation]:
        """Wait until all earlier operations on the model ``name`` are over; inside, no other one on it runs.

        ``asker`` is the operation that waits for this one, if any does. With ``undoes`` the earlier ones are given up.
        Operations that the server begins by itself are not bounded in number.

        Raises:
            WaitsForItselfError: the asker would wait for itself.
            UnavailableError: too many are queued.
            ServerStoppingError: no operation begins any more.
        """
        with ExitStack() as edges:
            self.check_open(name)
            if asker is not None:
                try:
                    edges.enter_context(self.graph.waiting(asker, OperationsOn(name)))
                except WaitCycleError:
                    raise _waits_for_itself(name, asker) from None
            operation = self._enter(name, is_requested)
            # Runs after the edge below is removed: the next operation then finds no trace of this one.
            edges.callback(self._leave, operation)
            edges.enter_context(self.graph.noting(OperationsOn(name), operation))
            if undoes:
                # Marks this operation as well, which has no effect: only loads ask whether they are wanted.
                self._give_up(self._queues[name], "the model is to be unloaded")
            await operation.is_first.wait()
            # The server may have begun to stop meanwhile.
            self.check_open(name)
            yield operation

    def concern(self, name: str) -> bool:
        """Whether an operation on the model ``name`` runs or is queued."""
        return name in self._queues

    def is_awaited(self, name: str) -> bool:
        """Whether an operation on another model waits for operations on the model ``name``, or will."""
        return any(isinstance(waiter, Operation) for waiter in self.graph.waiters_of(OperationsOn(name)))

    def close(self) -> None:
        """Refuse further operations, and give up those that run."""
        self._is_closed = True
        for queue in self._queues.values():
            self._give_up(queue, "the server is stopping")

    def check_open(self, name: str) -> None:
        """Check that an operation on the model ``name`` may begin, or continue with something slow.

        Raises:
            ServerStoppingError: it may not.
        """
        if self._is_closed:
            raise ServerStoppingError(f"the server is stopping: no operation on model '{name}' begins any more")

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until no operation is left; False when that takes longer than ``timeout`` seconds."""
        if self._idle.is_set():
            # ``wait_for`` with a timeout of zero would not look at the event.
            return True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def _give_up(self, operations: Iterable[Operation], why: str) -> None:
        for operation in operations:
            operation.not_wanted = operation.not_wanted or why
        # One may wait for memory.
        self.graph.notify()

    def _enter(self, name: str, is_requested: bool) -> Operation:
        queue = self._queues.get(name, deque())
        # The server's own operations are not bounded: at the start there are as many as models.
        if is_requested and (len(queue) >= MAX_WAITING or self._requested >= MAX_REQUESTED):
            raise UnavailableError(
                f"{len(queue)} operations on model '{name}' and {self._requested} on all models wait already: ask "
                "again when some of them are over"
            )
        operation = Operation(name, is_requested)
        queue.append(operation)
        self._queues[name] = queue
        self._requested += is_requested
        self._idle.clear()
        if queue[0] is operation:
            operation.is_first.set()
        return operation

    def _leave(self, operation: Operation) -> None:
        queue = self._queues[operation.name]
        queue.remove(operation)
        self._requested -= operation.is_requested
        if queue:
            queue[0].is_first.set()
        else:
            del self._queues[operation.name]
        if not self._queues:
            self._idle.set()


def _waits_for_itself(name: str, asker: Operation) -> WaitsForItselfError:
    return WaitsForItselfError(
        f"an operation on model '{name}' was asked for by a model that loads, and would wait for that load to "
        f"end: '{asker.name}' waits for '{name}', which waits for '{asker.name}'. Models cannot load or unload "
        "themselves or each other while they load"
    )
