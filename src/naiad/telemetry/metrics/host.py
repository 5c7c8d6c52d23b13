"""Figures of the machine and of this process, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from naiad.clock import Clock, SystemClock
from naiad.telemetry.metrics.memory_limits import ROOT, address_space_limit_bytes, cgroup_limit_bytes


def usable_memory_bytes(root: Path = ROOT) -> int:
    """The machine's memory, or less where a control group or ``ulimit -v`` allows less.

    ``root`` is the folder that holds ``proc`` and ``sys``.
    """
    import psutil

    limits = (psutil.virtual_memory().total, cgroup_limit_bytes(root), address_space_limit_bytes())
    return min(limit for limit in limits if limit is not None)


@dataclass(frozen=True, slots=True)
class MachineSample:
    """The machine at one moment; ``load`` is the busy share of all processors since the sample before, 0 to 1."""

    load: float
    memory_total_bytes: int
    memory_used_bytes: int


class MachineFigures:
    """Reads the figures on demand, the machine's at most once per interval.

    The first load is the one since the machine was started, since there is no earlier sample to compare with.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._sample: MachineSample | None = None
        self._taken_ns = 0
        self._total_s = 0.0
        self._busy_s = 0.0
        self._load = 0.0

    def machine(self, interval_ms: int) -> MachineSample:
        """The last sample, or a new one when it is older than ``interval_ms`` milliseconds."""
        now_ns = self._clock.now_ns()
        if self._sample is None or now_ns - self._taken_ns >= interval_ms * 1_000_000:
            self._sample = self._read()
            self._taken_ns = now_ns
        return self._sample

    @staticmethod
    def process() -> tuple[int, float]:
        """Resident memory in bytes and processor time in seconds of this process."""
        import psutil

        process = psutil.Process()
        times = process.cpu_times()
        return process.memory_info().rss, round(times.user + times.system, 6)

    def _read(self) -> MachineSample:
        import psutil

        memory = psutil.virtual_memory()
        return MachineSample(self._read_load(), memory.total, memory.total - memory.available)

    def _read_load(self) -> float:
        import psutil

        times = psutil.cpu_times()
        idle_s = times.idle + getattr(times, "iowait", 0.0)
        # The time of guests is part of the user time already.
        total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        busy_s = total_s - idle_s
        passed_s = total_s - self._total_s
        # The system counts in ticks: two reads may see the same time.
        if passed_s > 0:
            # The time of ``iowait`` may go back (proc(5)), so the share may leave the range.
            self._load = min(1.0, max(0.0, (busy_s - self._busy_s) / passed_s))
        self._total_s, self._busy_s = total_s, busy_s
        return round(self._load, 6)


HOST = MachineFigures()
"""The machine this process runs on: one, as it is."""
