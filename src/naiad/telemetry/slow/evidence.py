"""What happened in the server's process while requests were slow, over the last minute."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

SAMPLE_S: Final = 0.02
"""How often the process is looked at."""
MAX_SAMPLES: Final = 3000
_DEAREST_NS: Final = 700_000
"""The most that a page fault takes: that of a huge page, on a machine that has little else to do."""
_BYTE_NS: Final = 2
"""The most that the kernel takes to clear a byte of fresh memory, on a machine whose processors are all taken."""
LEAST_NS: Final = 5_000_000
"""A delay that is shorter is nothing unusual."""


class Incident(StrEnum):
    """A stop of the process, or of a part of it."""

    COLLECTION = "collection"
    INTERPRETER_HELD = "interpreter_held"
    LOOP_LATE = "loop_late"
    MACHINE_BUSY = "machine_busy"


class Stall(NamedTuple):
    """An incident from ``begin_ns`` to ``end_ns``, monotonic times; ``place`` is the code that ran, "" if unknown."""

    kind: Incident
    begin_ns: int
    end_ns: int
    place: str = ""


class ProcessSample(NamedTuple):
    """A look at the process, and its counters so far.

    Attributes:
        minor_faults, major_faults: page faults without and with a read from a disk.
        system_ns, cpu_ns: processor time in the kernel, and all of it.
        is_loading: a model was being loaded or unloaded.
        resident_bytes: the memory of the process.
    """

    at_ns: int
    minor_faults: int
    major_faults: int
    system_ns: int
    cpu_ns: int
    is_loading: bool
    resident_bytes: int = 0


class Evidence:
    """The stops and the samples of the last minute. Threads append; the loop reads.

    Attributes:
        watcher_waits: when the thread that watches was due and when it came, where it came late.
    """

    def __init__(self) -> None:
        self.stops: deque[Stall] = deque(maxlen=512)
        self.samples: deque[ProcessSample] = deque(maxlen=MAX_SAMPLES)
        self.watcher_waits: deque[tuple[int, int]] = deque(maxlen=512)

    def stopped_ns(self, kind: Incident, begin_ns: int, end_ns: int) -> int:
        """How long stops of a kind lasted within a time."""
        return covered(((s.begin_ns, s.end_ns) for s in self._stops() if s.kind is kind), begin_ns, end_ns)

    def stop_before(self, at_ns: int, within_ns: int) -> Stall | None:
        """The longest stop that ended in the ``within_ns`` before a time: what came then was read after it."""
        found = [s for s in self._stops() if at_ns - within_ns <= s.end_ns <= at_ns]
        return max(found, key=lambda s: s.end_ns - s.begin_ns, default=None)

    def place_of(self, kind: Incident, begin_ns: int, end_ns: int) -> str:
        """The code that ran in the longest stop of a kind within a time."""
        found = [s for s in self._stops() if s.kind is kind and s.begin_ns < end_ns and s.end_ns > begin_ns]
        return max(found, key=lambda s: s.end_ns - s.begin_ns).place if found else ""

    def loading_ns(self, begin_ns: int, end_ns: int) -> int:
        """How long a model was being loaded or unloaded within a time."""
        spans = ((a.at_ns, b.at_ns) for a, b in self._pairs(begin_ns, end_ns) if a.is_loading or b.is_loading)
        return covered(spans, begin_ns, end_ns)

    def watcher_late_ns(self, begin_ns: int, end_ns: int) -> int:
        """How long another thread waited for the interpreter, or for a processor, within a time."""
        return covered(tuple(self.watcher_waits), begin_ns, end_ns)

    def faulting_ns(self, begin_ns: int, end_ns: int) -> int:
        """About how long page faults took within a time, of all threads together."""
        total = 0
        for a, b, after in self._with_next(begin_ns, end_ns):
            # A fault counts when it ends, which may be in the next sample: that of a huge page takes milliseconds.
            minor, fresh = after.minor_faults - a.minor_faults, after.resident_bytes - a.resident_bytes
            major = b.major_faults - a.major_faults
            # What a fault costs differs a hundredfold between machines: the time in the kernel is what it was, if there
            # were faults enough to have caused it. Its share of the processor time is that of the wall time as well,
            # however busy the machine is.
            faults_ns = min(b.system_ns - a.system_ns, max(minor * _DEAREST_NS, fresh * _BYTE_NS))
            span, cpu_ns = max(1, b.at_ns - a.at_ns), max(1, b.cpu_ns - a.cpu_ns)
            took_ns = span * faults_ns // cpu_ns if cpu_ns * 20 > span else faults_ns
            took_ns += major * _DEAREST_NS
            share = covered([(a.at_ns, b.at_ns)], begin_ns, end_ns) / span
            total += int(min(took_ns, span) * share)
        return total

    def _with_next(self, begin_ns: int, end_ns: int) -> Iterator[tuple[ProcessSample, ProcessSample, ProcessSample]]:
        """The pairs with the sample that follows each; the last sample follows itself."""
        pairs = tuple(self._pairs(begin_ns, end_ns + 2 * int(SAMPLE_S * 1e9)))
        for at, (a, b) in enumerate(pairs):
            if a.at_ns < end_ns:
                yield a, b, pairs[at + 1][1] if at + 1 < len(pairs) else b

    def _stops(self) -> tuple[Stall, ...]:
        # A copy: a thread may append meanwhile.
        return tuple(self.stops)

    def _pairs(self, begin_ns: int, end_ns: int) -> Iterator[tuple[ProcessSample, ProcessSample]]:
        samples = tuple(self.samples)
        first = bisect_left(samples, begin_ns, key=lambda s: s.at_ns)
        for at in range(max(1, first), len(samples)):
            if samples[at - 1].at_ns >= end_ns:
                return
            yield samples[at - 1], samples[at]


def covered(spans: Iterable[tuple[int, int]], begin_ns: int, end_ns: int) -> int:
    """How much of a time some spans cover, each part of it counted once."""
    total, reached = 0, begin_ns
    for begin, end in sorted(spans):
        begin, end = max(begin, reached), min(end, end_ns)
        if end > begin:
            total += end - begin
            reached = end
    return total
