"""The messages of a stream that wait for a model that is being loaded, or for a long message before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from naiad.errors import NaiadError

if TYPE_CHECKING:
    from naiad.frontends.grpc.rpc.call import Body
    from naiad.lifecycle.memory.load_on_demand import LoadOnDemand, ModelNotLoadedError, Waiting


class _BeingRead:
    """The wait for a long message that a thread reads."""

    def leave(self) -> None:
        """Nothing waits any more. The thread cannot be stopped and reads to the end."""


class WaitingMessages:
    """The waiting messages of a stream, in order, from the first one whose model is being loaded or that takes long to
    read.

    Args:
        receive: takes a message, and may make it wait again.
        refuse: responds to a message with an error, in its place.
    """

    __slots__ = ("_is_replaying", "_messages", "_receive", "_refuse", "_waiting")

    def __init__(self, receive: Callable[[Body], None], refuse: Callable[[NaiadError, Body], None]) -> None:
        self._messages: deque[Body] = deque()
        self._is_replaying = False
        self._receive = receive
        self._refuse = refuse
        self._waiting: Waiting | _BeingRead | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a message waits, or the load or reading that it would wait for has not ended."""
        return self._waiting is not None or bool(self._messages)

    def takes(self, message: Body) -> bool:
        """Keep a message that comes while others wait; False if it need not wait."""
        # While replaying, the messages come out of this queue, and must not go back to its end.
        if self._is_replaying or not self.is_waiting:
            return False
        self._messages.append(message)
        return True

    def wait(self, demand: LoadOnDemand, message: Body, missing: ModelNotLoadedError) -> None:
        """Have the model of a message loaded first.

        Raises:
            UnavailableError: too many wait, or a load has just failed.
        """
        self._waiting = demand.wait(missing.name, len(message), self._replay)
        # To the front: in a replay it came from there, and keeps its place.
        self._messages.appendleft(message)

    def defer_messages(self) -> Callable[[], None]:
        """Make all further messages wait until the returned function is called: a thread reads the one before them."""
        waiting = self._waiting = _BeingRead()
        return partial(self._been_read, waiting)

    def _been_read(self, waiting: _BeingRead) -> None:
        # Meanwhile the messages may have begun to wait for something else, or the stream may have left.
        if self._waiting is waiting:
            self._replay(None)

    def leave(self) -> None:
        """Drop all waiting messages: the stream ends."""
        self._messages.clear()
        if self._waiting is not None:
            self._waiting.leave()
            self._waiting = None

    def _replay(self, error: NaiadError | None) -> None:
        self._waiting = None
        self._is_replaying = True
        try:
            if error is not None:
                self._refuse(error, self._messages.popleft())
            while self._messages and self._waiting is None:
                self._receive(self._messages.popleft())
        finally:
            self._is_replaying = False
