"""A process of the load generator: ``python -m naiad.perf.workers.process DESCRIPTOR``.

It makes its part of the load on a loop of its own, and does what it is told over the descriptor. When the other end is
closed, it ends at once.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from naiad.perf.load.host import sharpen_timers
from naiad.perf.load.load import NEVER_NS, Load
from naiad.perf.load.loads import LoadFactory, encode_streams, timestamps_of
from naiad.perf.measure.processor import processor_time
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.open import open_target
from naiad.perf.target.protocol import Place, TargetError
from naiad.perf.workers.messages import Begin, Close, Cut, Done, Open, Prepare, State, StopLoad, WindowPart

_TURN_NS = 200_000_000

clock = time.monotonic_ns


class GeneratorProcess:
    """The loop of the process, and the load on it.

    It is a channel of its own loop: the one that its orders come by.
    """

    places: Sequence[Place] = ()
    is_open = is_reached = True

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._factory: LoadFactory | None = None
        self._loop: EpollLoop | None = None
        self._load: Load | None = None
        self._begin_ns = self._cut_ns = NEVER_NS
        self._begins_window = False
        self._reported = State()
        self._exported: Sequence[dict[str, object]] | None = None

    def run(self) -> None:
        """Do what is told until the other end is closed."""
        while True:
            if self._load is None or self._loop is None:
                self.receive()
            else:
                self._turn(self._load, self._loop)

    def _turn(self, load: Load, loop: EpollLoop) -> None:
        now = clock()
        if now >= self._begin_ns:
            began, self._begin_ns = self._begin_ns, NEVER_NS
            load.begin(began)
        if now >= self._cut_ns:
            self._cut(load, loop)
        loop.turn(min(load.pump(now), self._begin_ns, self._cut_ns, now + _TURN_NS))
        if self._load is not load:
            # It was closed meanwhile; the next level must not hear of it.
            return
        state = State(load.is_warm, load.is_over, not (load.is_running or load.in_flight), loop.failure)
        if state != self._reported:
            self._reported = state
            self._connection.send(state)

    def _cut(self, load: Load, loop: EpollLoop) -> None:
        at_ns, self._cut_ns = self._cut_ns, NEVER_NS
        window = load.recorder.end_window(at_ns)
        if self._begins_window:
            load.recorder.begin_window(at_ns)
        self._connection.send(WindowPart(window, processor_time(), loop.take_delays(), load.in_flight))

    # The channel

    def fileno(self) -> int:
        """The descriptor of the orders."""
        return self._connection.fileno()

    def receive(self) -> None:
        """Take an order.

        Raises:
            EOFError: there will be no more.
        """
        order = self._connection.recv()
        if isinstance(order, Begin):
            self._begin_ns = order.at_ns
        elif isinstance(order, Cut):
            self._cut_ns, self._begins_window = order.at_ns, order.begins
        elif isinstance(order, StopLoad):
            self._begin_ns = NEVER_NS
            if self._load is not None:
                self._load.stop()
        else:
            self._connection.send(self._do(order))

    def handle(self, mask: int) -> None:
        """Take the end of the orders."""
        self.receive()

    def connect(self) -> None:
        """It is connected."""

    def flush(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """It stays open from one level to the next."""

    # Orders that take a while

    def _do(self, order: Any) -> Done:
        try:
            if isinstance(order, Prepare):
                self._prepare(order)
            elif isinstance(order, Open):
                self._open(order)
            elif isinstance(order, Close):
                return self._close()
        except TargetError as error:
            return Done(str(error))
        return Done()

    def _prepare(self, order: Prepare) -> None:
        target = open_target(order.settings)
        model = target.describe()
        if order.outputs is not None:
            target.place_tensors(order.outputs)
        self._exported = order.exported
        encoded = encode_streams(target, order.streams)
        self._factory = LoadFactory(order.settings, target, model, encoded, timestamps_of(order.streams))
        # What is there now stays: a full collection over it would hold requests back.
        gc.collect()
        gc.freeze()

    def _open(self, order: Open) -> None:
        assert self._factory is not None, "prepare comes before open"
        loop = EpollLoop()
        try:
            load = self._factory.open(loop, self._factory.recorder(self._exported), order.level, order.share)
        except TargetError:
            loop.close()
            raise
        loop.add(self, writes=False)
        self._reported = State()
        self._begin_ns = self._cut_ns = NEVER_NS
        self._loop, self._load = loop, load

    def _close(self) -> Done:
        loop, load = self._loop, self._load
        self._loop = self._load = None
        if loop is None or load is None:
            return Done()
        in_flight = load.in_flight
        load.close()
        loop.close()
        return Done(records=load.recorder.records(0), in_flight=in_flight)


def main() -> None:
    """DESCRIPTOR."""
    sharpen_timers()
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    try:
        GeneratorProcess(connection).run()
    except (EOFError, ConnectionError):
        # Whoever started it is gone, or needs it no more. Nothing of it has to be put in order.
        os._exit(0)


if __name__ == "__main__":
    main()
