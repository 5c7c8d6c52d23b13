"""Looks at the server beside the load: its counts at the ends of windows, and how busy it is about once a second.

Questions go over connections of their own on the loop of the load, so that waiting for answers costs the load nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import psutil

from naiad.perf.measure.merge import difference
from naiad.perf.measure.metrics_page import MetricsSample, read_metrics
from naiad.perf.measure.process import WatchedProcess
from naiad.perf.measure.usage import note_seconds, usage_between
from naiad.perf.results import ServerParts, Window
from naiad.perf.settings import MeasureSettings
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.metrics import MetricsTarget
from naiad.perf.target.protocol import ClientChannel, PerfTarget, Place, Poller, Problem, ResponseListener
from naiad.perf.transfer import TransferTimes

SETTLE_S: Final = 5.0
"""How long the last counts are waited for, in seconds."""

clock = time.monotonic_ns


class SidePoller:
    """The loop for channels whose loss does not end the measurement.

    Attributes:
        failure: why the channel is of no use any more; empty while it is.
    """

    def __init__(self, loop: EpollLoop) -> None:
        self.add = loop.add
        self.watch_writes = loop.watch_writes
        self.remove = loop.remove
        self.flush_later = loop.flush_later
        self.failure = ""

    def fail(self, cause: str) -> None:
        """Note the cause."""
        self.failure = cause


class SideQuestion:
    """A request that is sent again and again over a channel of its own, at most one at a time."""

    def __init__(
        self,
        loop: EpollLoop,
        open_channel: Callable[[Poller, ResponseListener], ClientChannel],
        request: Any,
        take: Callable[[bytes, int], None],
    ) -> None:
        self.times = TransferTimes()
        self.is_waiting = False
        self._poller = SidePoller(loop)
        self._request = request
        self._take = take
        self._channel = open_channel(self._poller, self)

    def query(self) -> None:
        """Send the request, unless the last one is still unanswered."""
        if not self.is_waiting and not self._poller.failure:
            self.is_waiting = True
            now_ns = clock()
            self._channel.places[0].start(self._request, now_ns, now_ns)

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Hand the answer over."""
        self.is_waiting = False
        if problem is None:
            self._take(self._request.body, now_ns)

    def responded(self, place: Place, now_ns: int) -> None:
        """Answers come at once."""

    def unreached(self, channel: ClientChannel, cause: str) -> None:
        """Ask no more."""
        self._poller.fail(cause)

    @property
    def is_unanswered(self) -> bool:
        """Whether an answer may still come."""
        return self.is_waiting and not self._poller.failure


class Observer:
    """Everything that is known of the server during a level."""

    def __init__(
        self, loop: EpollLoop, target: PerfTarget, settings: MeasureSettings, metrics: MetricsTarget | None
    ) -> None:
        self._loop = loop
        self._marks: list[tuple[int, ServerParts | None]] = []
        self._samples: list[MetricsSample] = []
        self._interval_ns = settings.metrics_interval_ms * 1_000_000
        self._next_ns = 0
        self._marked = 0
        self._unanswered_marks = 0
        self._target = target
        self._statistics: SideQuestion | None = None
        request = target.statistics_request()
        if request is not None:
            self._statistics = SideQuestion(loop, target.open_side, request, self._take_statistics)
        self._metrics: SideQuestion | None = None
        self._process: WatchedProcess | None = None
        self._source = ""
        if settings.server_pid is not None:
            self._process = _watched(settings.server_pid)
            self._source = f"pid {settings.server_pid}"
        elif metrics is not None:
            self._metrics = SideQuestion(loop, metrics.open, metrics.request(), self._take_metrics)
            self._source = metrics.url

    def mark(self) -> None:
        """Note the server's counts, which tell the windows apart; ``finish`` says what was between."""
        self._marks.append((clock(), None))
        if self._statistics is not None:
            if self._statistics.is_waiting:
                self._unanswered_marks += 1
            else:
                self._marked = len(self._marks) - 1
                self._statistics.query()
        self.look()

    def look(self) -> None:
        """Note how busy the server is."""
        self._next_ns = clock() + self._interval_ns
        if self._process is not None:
            sample = self._process.sample()
            if sample is not None:
                self._samples.append(sample)
        elif self._metrics is not None:
            self._metrics.query()

    @property
    def is_behind(self) -> bool:
        """Whether the server did not tell its counts in time at the end of a window."""
        return self._unanswered_marks > 0 or (self._statistics is not None and self._statistics.is_unanswered)

    def pump(self, now_ns: int) -> int:
        """Look when it is time; returns when to be called again."""
        if now_ns >= self._next_ns:
            self.look()
        return self._next_ns

    def _take_statistics(self, body: bytes, now_ns: int) -> None:
        at_ns, _ = self._marks[self._marked]
        self._marks[self._marked] = (at_ns, self._target.read_statistics(body))

    def _take_metrics(self, body: bytes, now_ns: int) -> None:
        self._samples.append(read_metrics(body, now_ns))

    def settle(self) -> None:
        """Wait for answers, for a bounded time."""
        end = clock() + int(SETTLE_S * 1e9)
        questions = [question for question in (self._statistics, self._metrics) if question is not None]
        while any(question.is_unanswered for question in questions) and clock() < end:
            self._loop.turn(clock() + 50_000_000)

    def finish(self, windows: list[Window]) -> None:
        """Wait for the last answers, and write into the windows what was found; they lie between the marks."""
        self.settle()
        for index, window in enumerate(windows):
            if index + 1 >= len(self._marks):
                break
            (began_ns, before), (ended_ns, after) = self._marks[index : index + 2]
            window.server = difference(after, before)
            samples = self._within(began_ns, ended_ns)
            window.usage = usage_between(samples, self._source, window.requests)
            note_seconds(window, samples, began_ns)

    def _within(self, began_ns: int, ended_ns: int) -> list[MetricsSample]:
        """The samples of a window: those that were asked for at its ends arrive a little later."""
        slack_ns = min(self._interval_ns // 2, (ended_ns - began_ns) // 4)
        return [sample for sample in self._samples if began_ns <= sample.at_ns <= ended_ns + slack_ns]


def _watched(pid: int) -> WatchedProcess | None:
    try:
        return WatchedProcess(pid)
    except psutil.Error:
        return None
