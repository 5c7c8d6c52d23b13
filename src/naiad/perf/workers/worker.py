"""A process of the load generator as the one that started it sees it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from naiad.perf.measure.processor import ProcessorTime
from naiad.perf.target.protocol import Place, TargetError
from naiad.perf.workers.messages import Done, State, WindowPart
from naiad.processes.process_group import GroupedProcess

RESPONSE_S: Final = 60.0
"""The longest wait for a response, in seconds."""
_END_S: Final = 5.0


class Worker:
    """A started process, and a channel of the loop that its news come by.

    It has a process group of its own: Ctrl-C concerns the process that started it, which then stops it in order.

    Args:
        name: how errors call it.

    Attributes:
        state: what has become of its part of the level.
        processor_time: its own at the last cut.
        in_flight: requests without a response at the last cut.
        is_lost: whether the process has ended.

    Raises:
        TargetError: it cannot be started.
    """

    places: Sequence[Place] = ()
    is_open = is_reached = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State()
        self.processor_time = ProcessorTime(0, 0)
        self.in_flight = 0
        self.is_lost = False
        self._responses: list[Done | WindowPart] = []
        self._on_news: Callable[[Worker], None] = lambda worker: None
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "naiad.perf.workers.process", str(theirs.fileno())]
            try:
                self._process = GroupedProcess(command, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL)
            except OSError as error:
                ours.close()
                raise TargetError(f"{name} cannot be started: {error.strerror or error}") from None
        self._connection: Connection[Any, Any] = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def order(self, order: Any) -> None:
        """Give it an order.

        Raises:
            TargetError: the process has ended.
        """
        try:
            self._connection.send(order)
        except OSError:
            raise TargetError(self._why_it_ended()) from None

    def response(self) -> Any:
        """Its response to the order before.

        Raises:
            TargetError: it has ended, does not respond, or could not do it.
        """
        while not self._responses:
            if not self._connection.poll(RESPONSE_S):
                raise TargetError(f"{self.name} (process {self.pid}) does not respond within {RESPONSE_S:g} s")
            self._take()
        response = self._responses.pop(0)
        if isinstance(response, Done) and response.failure:
            raise TargetError(response.failure)
        return response

    def begin_level(self, on_news: Callable[[Worker], None]) -> None:
        """Forget the last level; ``on_news`` is called when the state of the load has changed."""
        self.state = State()
        self.in_flight = 0
        self._on_news = on_news

    def _take(self) -> None:
        try:
            news = self._connection.recv()
        except (EOFError, OSError):
            raise TargetError(self._why_it_ended()) from None
        if isinstance(news, State):
            self.state = news
            self._on_news(self)
        else:
            self._responses.append(news)
        if isinstance(news, WindowPart):
            self.processor_time, self.in_flight = news.processor_time, news.in_flight

    def _why_it_ended(self) -> str:
        self.is_lost = True
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return f"{self.name} (process {self.pid}) has closed its connection"
        if code < 0:
            try:
                cause = f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                cause = f"was ended by the signal {-code}"
        else:
            cause = f"ended with the code {code}"
        return f"{self.name} (process {self.pid}) {cause}"

    # The channel

    def fileno(self) -> int:
        """The descriptor that news come by."""
        return self._connection.fileno()

    def receive(self) -> None:
        """Take news."""
        try:
            self._take()
        except TargetError as error:
            self.state = State(failure=str(error))
            self._on_news(self)

    def handle(self, mask: int) -> None:
        """Take the end of the news."""
        self.receive()

    def connect(self) -> None:
        """It is connected."""

    def flush(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """The process stays from one level to the next; ``end`` ends it."""

    def hang_up(self) -> None:
        """Let the process end."""
        self._connection.close()

    def end(self) -> None:
        """Wait until the process has ended; one that does not is ended."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
