"""The messages of a stream that wait: for a model that is being loaded, or for a long message before them."""

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
    """The wait for a long message that is being read."""

    def leave(self) -> None:
        """Nobody waits any more: it is read to its end all the same."""


class WaitingMessages:
    """The messages of a stream, from the first one on whose model is being loaded, or that takes long to read. They
    keep their order.

    Args:
        receive: takes a message, and may let it wait again.
        refuse: answers a message with an error, in its place.
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
        """Whether any message waits, or something that they wait for has not ended."""
        return self._waiting is not None or bool(self._messages)

    def takes(self, message: Body) -> bool:
        """Keep a message that comes while others wait; False when it need not wait."""
        if self._is_replaying or not self.is_waiting:
            return False
        self._messages.append(message)
        return True

    def wait(self, demand: LoadOnDemand, message: Body, missing: ModelNotLoadedError) -> None:
        """The model of a message is loaded first.

        Raises:
            UnavailableError: it cannot wait.
        """
        self._waiting = demand.wait(missing.name, len(message), self._replay)
        self._messages.appendleft(message)

    def hold_back(self) -> Callable[[], None]:
        """Let all further messages wait until the returned function is called: one before them is being read."""
        waiting = self._waiting = _BeingRead()
        return partial(self._been_read, waiting)

    def _been_read(self, waiting: _BeingRead) -> None:
        # By now they may wait for something else, or nobody waits.
        if self._waiting is waiting:
            self._replay(None)

    def leave(self) -> None:
        """Nobody waits any more."""
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
