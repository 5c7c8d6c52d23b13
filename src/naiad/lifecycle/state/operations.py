"""One operation per model at a time: loads and unloads of a model take their turns in the order in which they came.

A model that loads may ask for other operations and wait for them. What waits for what is known here, so that an
operation that could never get its turn is refused instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from naiad.errors import InvalidArgumentError, ModelLoadError, ServerStoppingError, UnavailableError

MAX_WAITING: Final = 64
"""How many operations of one model may wait when somebody asks for another one."""
MAX_TOGETHER: Final = 1024
"""How many operations of all models may run and wait that somebody has asked for."""


class WaitsForItselfError(InvalidArgumentError):
    """A model that loads asked for something that could only begin once it is loaded."""


class Operation:
    """A load or an unload of one model, from the moment it was asked for until it is over.

    Attributes:
        is_asked: somebody asked for it; the server began others by itself, as many as its repositories call for.
        is_awaited: another operation waits for it.
        not_wanted: why nobody needs what it works for any more, "" while somebody does. Read in loading threads.
    """

    __slots__ = ("asked_for", "is_asked", "is_awaited", "is_first", "name", "not_wanted")

    def __init__(self, name: str, is_asked: bool = True, is_awaited: bool = False) -> None:
        self.name = name
        self.is_asked = is_asked
        self.is_awaited = is_awaited
        self.not_wanted = ""
        self.is_first = asyncio.Event()
        self.asked_for: set[Operation] = set()

    def check_wanted(self) -> None:
        """Check that somebody needs what it works for.

        Raises:
            ModelLoadError: nobody does any more.
        """
        if self.not_wanted:
            raise ModelLoadError(f"the operation on model '{self.name}' was given up: {self.not_wanted}")


class Operations:
    """All operations that run or wait, by model. Used on the event loop only."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Operation]] = {}
        self._asked = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False

    @asynccontextmanager
    async def turn(
        self, name: str, asker: Operation | None = None, undoes: bool = False, is_asked: bool = True
    ) -> AsyncIterator[Operation]:
        """Wait until all earlier operations of the model ``name`` are over; inside, no other one of it runs.

        ``asker`` is the operation that waits for this one, if any does. With ``undoes`` nothing of the earlier ones is
        to stay. Those that nobody asked for are not bounded in number.

        Raises:
            WaitsForItselfError: the asker would wait for itself.
            UnavailableError: too many wait.
            ServerStoppingError: no operation begins any more.
        """
        operation = self._enter(name, asker, is_asked)
        if undoes:
            self._give_up(self._queues[name], "the model is to be unloaded")
        try:
            await operation.is_first.wait()
            self.check_open(name)
            yield operation
        finally:
            if asker is not None:
                asker.asked_for.discard(operation)
            self._leave(operation)

    def concern(self, name: str) -> bool:
        """An operation on the model ``name`` runs or waits."""
        return name in self._queues

    def is_awaited(self, name: str) -> bool:
        """An operation on another model goes on only after those on the model ``name``."""
        return any(operation.is_awaited for operation in self._queues.get(name, ()))

    def waits_for(self, name: str, other: str) -> bool:
        """An operation on the model ``name`` goes on only after one on the model ``other``."""
        ahead = self._queues.get(other, ())
        return any(self._waits_for(one, two) for one in self._queues.get(name, ()) for two in ahead)

    def close(self) -> None:
        """Let no further operation begin, and those that run end soon."""
        self._is_closed = True
        for queue in self._queues.values():
            self._give_up(queue, "the server is stopping")

    def check_open(self, name: str) -> None:
        """Check that an operation on the model ``name`` may begin, or go on to what takes long.

        Raises:
            ServerStoppingError: it may not.
        """
        if self._is_closed:
            raise ServerStoppingError(f"the server is stopping: no operation on model '{name}' begins any more")

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until none runs or waits; False when that takes longer than ``timeout`` seconds."""
        if self._idle.is_set():
            # Also with a timeout of zero, for which an event is not even looked at.
            return True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True

    @staticmethod
    def _give_up(operations: Iterable[Operation], why: str) -> None:
        for operation in operations:
            operation.not_wanted = operation.not_wanted or why

    def _enter(self, name: str, asker: Operation | None, is_asked: bool) -> Operation:
        self.check_open(name)
        queue = self._queues.get(name, deque())
        if asker is not None and any(self._waits_for(ahead, asker) for ahead in queue):
            raise WaitsForItselfError(
                f"an operation on model '{name}' was asked for by a model that loads, and would wait for that load to "
                f"end: '{asker.name}' waits for '{name}', which waits for '{asker.name}'. Models cannot load or unload "
                "themselves or each other while they load"
            )
        if is_asked and (len(queue) >= MAX_WAITING or self._asked >= MAX_TOGETHER):
            raise UnavailableError(
                f"{len(queue)} operations on model '{name}' and {self._asked} on all models wait already: ask again "
                "when some of them are over"
            )
        operation = Operation(name, is_asked, asker is not None)
        queue.append(operation)
        self._queues[name] = queue
        self._asked += is_asked
        self._idle.clear()
        if asker is not None:
            asker.asked_for.add(operation)
        if queue[0] is operation:
            operation.is_first.set()
        return operation

    def _leave(self, operation: Operation) -> None:
        queue = self._queues[operation.name]
        queue.remove(operation)
        self._asked -= operation.is_asked
        if queue:
            queue[0].is_first.set()
        else:
            del self._queues[operation.name]
        if not self._queues:
            self._idle.set()

    def _waits_for(self, operation: Operation, other: Operation) -> bool:
        """Whether ``operation`` ends only after ``other`` has ended."""
        seen: set[Operation] = set()
        waiting = [operation]
        while waiting:
            found = waiting.pop()
            if found is other:
                return True
            if found in seen:
                continue
            seen.add(found)
            waiting += found.asked_for
            for ahead in self._queues[found.name]:
                if ahead is found:
                    break
                waiting.append(ahead)
        return False
