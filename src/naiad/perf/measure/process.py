"""Processor time and memory of a local server process and its children."""

from __future__ import annotations

import time

import psutil

from naiad.perf.measure.metrics_page import MetricsSample


class WatchedProcess:
    """A process by its id.

    Raises:
        psutil.NoSuchProcess, psutil.AccessDenied: it cannot be looked at.
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._children: list[psutil.Process] = []
        self._ended_s = 0.0
        self._known: dict[int, float] = {}
        self.find_processes()

    def find_processes(self) -> None:
        """Look for children that are new; it takes some milliseconds, so it is done between windows."""
        try:
            self._children = self._process.children(recursive=True)
        except psutil.Error:
            self._children = []

    def sample(self) -> MetricsSample | None:
        """Processor time since the start and memory now; None when the process has ended."""
        try:
            own = self._process.cpu_times()
            rss = self._process.memory_info().rss
        except psutil.Error:
            return None
        seconds = own.user + own.system
        for child in self._children:
            try:
                times = child.cpu_times()
                self._known[child.pid] = times.user + times.system
                rss += child.memory_info().rss
            except psutil.Error:
                # A child that has ended keeps the time that was seen last.
                continue
        return MetricsSample(time.monotonic_ns(), seconds + sum(self._known.values()), rss)
