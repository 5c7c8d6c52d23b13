"""A crew of callers with one list of calls: its connections, results and end. For ``grpc_callers`` alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import uvloop

from .figures import CaseError
from .tally import Tally


class Caller(Protocol):
    """One connection of the crew. It enters itself in ``callers`` and leaves when the connection is gone.

    Attributes:
        call: what it waits for, None when it waits for nothing.
    """

    call: Any
    transport: asyncio.Transport


class Crew:
    """The callers of one run.

    Attributes:
        calls: the calls to send; every caller takes its next call from here.
        tally: the results so far.
        callers: the callers that have a connection now.
    """

    def __init__(self, port: int, calls: Iterator[Any], caller: Callable[[Crew], asyncio.BaseProtocol]) -> None:
        self.port = port
        self.calls = calls
        self.caller = caller
        self.tally = Tally()
        self.callers: set[Caller] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._done = asyncio.Event()

    async def run(self, connections: int, limit_seconds: float) -> Tally:
        """Send every call over ``connections`` connections.

        Raises:
            CaseError: calls were still unanswered after ``limit_seconds``.
        """
        for _ in range(connections):
            self.connect()
        try:
            await asyncio.wait_for(self._done.wait(), limit_seconds)
        except TimeoutError:
            waiting = Counter(caller.call.kind for caller in self.callers if caller.call)
            raise CaseError(f"not answered after {limit_seconds:g} s: {dict(waiting)}") from None
        finally:
            for caller in self.callers:
                caller.transport.abort()
        return self.tally

    def connect(self) -> None:
        """One caller more."""
        task = asyncio.get_running_loop().create_task(self._connect())
        self._connecting.add(task)
        task.add_done_callback(self._connected)

    async def _connect(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self.caller(self), "127.0.0.1", self.port)

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.tally.count("connection", f"cannot connect: {error}")
        self.check_done()

    def check_done(self) -> None:
        """End the run when no caller is left."""
        if not self.callers and not self._connecting:
            self._done.set()


def run_crew(
    port: int,
    calls: Iterator[Any],
    caller: Callable[[Crew], asyncio.BaseProtocol],
    connections: int,
    limit_seconds: float,
) -> Tally:
    """Send every call over ``connections`` connections made by ``caller`` and return what came of them.

    Raises:
        CaseError: calls were still unanswered after ``limit_seconds``.
    """

    async def run() -> Tally:
        return await Crew(port, calls, caller).run(connections, limit_seconds)

    tally: Tally = uvloop.run(run())
    return tally
