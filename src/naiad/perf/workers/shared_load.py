"""A level whose load is made by several processes, as its windows see it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from naiad.perf.histogram import DurationHistogram
from naiad.perf.load.load import NEVER_NS
from naiad.perf.load.share import Share
from naiad.perf.measure.merge import add_counts
from naiad.perf.measure.processor import ProcessorTime, processor_time
from naiad.perf.measure.recorder import Recorder
from naiad.perf.results import LoadLevel, RequestRecord, Second, Window
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import TargetError
from naiad.perf.workers.messages import Begin, Close, Cut, Open, StopLoad, WindowPart
from naiad.perf.workers.worker import Worker

LEAD_NS: Final = 2_000_000
"""Between an order and the time at which all processes carry it out."""
_BEGIN_NS: Final = 5_000_000

clock = time.monotonic_ns


class SharedRecorder(Recorder):
    """Collects what the processes have noted; all of them cut their notes at the same time.

    Args:
        loop: hears of a process that is lost.

    Attributes:
        delays_ns: of the turns of their loops.
        exported: their records.
    """

    def __init__(self, loop: EpollLoop, workers: Sequence[Worker]) -> None:
        super().__init__()
        self._loop = loop
        self._workers = workers
        self._parts: list[Window] = []
        self._cut_ns = 0
        self.delays_ns: list[int] = []
        self.exported: list[RequestRecord] = []

    def begin_window(self, now_ns: int) -> None:
        """Begin an empty window."""
        super().begin_window(self._cut(now_ns, begins=True))

    def fold(self, now_ns: int) -> Second:
        """Fetch what has happened since the last cut, and sum it up."""
        return super().fold(self._cut(now_ns))

    def end_window(self, now_ns: int) -> Window:
        """Close the window, and begin the next one at the same time."""
        return super().end_window(self._cut(now_ns))

    def records(self, level: int) -> list[RequestRecord]:
        """The requests of all processes in the order in which they were sent, once the level is closed."""
        for record in self.exported:
            record.level = level
        return sorted(self.exported, key=lambda record: record.timestamp_ns)

    def _cut(self, now_ns: int, *, begins: bool = False) -> int:
        if now_ns == self._cut_ns or any(worker.is_lost for worker in self._workers):
            return now_ns
        at_ns = self._cut_ns = now_ns + LEAD_NS
        try:
            # All orders before the first answer, so that the processes cut at the same time.
            for worker in self._workers:
                worker.order(Cut(at_ns, begins))
            for worker in self._workers:
                part = worker.response()
                if isinstance(part, WindowPart):
                    self._parts.append(part.window)
                    self.delays_ns += part.delays_ns
        except TargetError as error:
            self._loop.fail(str(error))
        return at_ns

    def _take(self, latency: DurationHistogram) -> tuple[int, int]:
        parts, self._parts = self._parts, []
        errors = count = 0
        for part in parts:
            latency.merge(part.latency)
            # The durations are in ``latency`` now: ``add_counts`` would count them twice.
            part.latency = DurationHistogram()
            add_counts(self.window, part)
            errors += part.errors.total()
            count += part.requests
        self.completions += count + errors
        return errors, count


class SharedLoad:
    """The load of one level over processes.

    Args:
        workers: those that take part.

    Attributes:
        recorder: what came of the requests.
        processes: how many make the load.

    Raises:
        TargetError: one of them cannot connect, or has ended.
    """

    def __init__(self, loop: EpollLoop, workers: Sequence[Worker], level: LoadLevel) -> None:
        self._loop = loop
        self._workers = workers
        self.processes = len(workers)
        for index, worker in enumerate(workers):
            worker.begin_level(self._heard)
            worker.order(Open(level, Share(index, len(workers))))
        for worker in workers:
            worker.response()
        for worker in workers:
            loop.add(worker, writes=False)
        self._recorder = SharedRecorder(loop, workers)
        self._unanswered: dict[Worker, int] = {}

    @property
    def recorder(self) -> SharedRecorder:
        """What came of the requests."""
        return self._recorder

    def _heard(self, worker: Worker) -> None:
        if worker.state.failure:
            self._loop.fail(worker.state.failure)
        if worker.is_lost:
            self._loop.remove(worker.fileno())

    def begin(self, now_ns: int) -> None:
        """Start all parts at the same time."""
        self._send_all(Begin(now_ns + _BEGIN_NS))

    def _send_all(self, order: object) -> None:
        try:
            for worker in self._workers:
                worker.order(order)
        except TargetError as error:
            self._loop.fail(str(error))

    def pump(self, now_ns: int) -> int:
        """The processes send what is due."""
        return NEVER_NS

    @property
    def is_warm(self) -> bool:
        """Whether windows may begin."""
        return all(worker.state.is_warm for worker in self._workers)

    @property
    def is_over(self) -> bool:
        """Whether a load that has an end has reached it."""
        return all(worker.state.is_over for worker in self._workers)

    @property
    def in_flight(self) -> int:
        """Requests that are not over, as far as the processes have told."""
        if self._unanswered:
            return sum(self._unanswered.values())
        # Whoever has not said that all is answered has a request in flight, whatever was told before.
        return sum(max(worker.in_flight, 1) for worker in self._workers if not worker.state.is_drained)

    @property
    def waits(self) -> bool:
        """Whether a response was due when the processes told of it last."""
        return any(worker.in_flight for worker in self._workers)

    def stop(self) -> None:
        """Send nothing more; what is in flight goes on."""
        self._send_all(StopLoad())

    def close(self) -> None:
        """Close all connections."""
        try:
            for worker in self._workers:
                self._loop.remove(worker.fileno())
                worker.order(Close())
            for worker in self._workers:
                done = worker.response()
                self._recorder.exported += done.records
                self._unanswered[worker] = done.in_flight
        except TargetError as error:
            self._loop.fail(str(error))

    def processor_time(self) -> ProcessorTime:
        """The processor time of all processes so far; this one uses some, but waits for nothing but them."""
        times = [worker.processor_time for worker in self._workers]
        used_ns = processor_time().used_ns + sum(each.used_ns for each in times)
        return ProcessorTime(used_ns, sum(each.waited_ns for each in times))

    def take_delays(self) -> list[int]:
        """The delays of the turns of all loops since the last call, in ns."""
        taken, self._recorder.delays_ns = self._recorder.delays_ns, []
        return taken
