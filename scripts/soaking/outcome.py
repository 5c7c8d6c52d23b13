"""What a run came to, as figures with bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.figures import Bound, Figure
from benchmarks.machine import MIB

from naiad.perf.histogram import DurationHistogram

from .faults import Faults
from .record import Failure, Record, by_cause
from .samples import Sample, slope_per_hour

WARM_S = 3600.0
"""Memory may grow for the first hour: caches fill, and allocators take their arenas."""
LONG_S = 2 * WARM_S - 600.0
"""A run as long as this has bounds for its slopes."""
STEADY_MINUTES = 9
"""A run as long as this has a bound for the drift of its p99: shorter ones have too few minutes to compare."""
SLOPE = Bound("<", 1.0)
DRIFT = Bound("<=", 1.5)
NONE = Bound("=", 0)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is left after the load, compared with the server before it, and after the end of the server.

    Attributes:
        quiet_before, quiet_after: the server without requests.
        in_flight: requests and bytes that the server counts as in flight without any.
        processes, shared_memory: how many outlive the server.
        temporary: the names of what is left in its folder for temporary files.
        exit_code: of the server.
        tracebacks: in its log.
    """

    quiet_before: Sample
    quiet_after: Sample
    in_flight: float
    processes: int
    shared_memory: int
    temporary: tuple[str, ...]
    exit_code: int
    tracebacks: int


def figures(
    record: Record, faults: Faults, samples: Sequence[Sample], left: Leftovers, seconds: float
) -> Iterator[Figure]:
    """Every figure of a run that lasted so long."""
    yield Figure("requests", record.requests, "requests", Bound(">=", 1), f"{record.requests / seconds:.0f} a second")
    yield from error_figures(record, faults)
    yield from fault_figures(faults)
    yield from latency_figures(record, seconds)
    yield from slope_figures(samples, seconds)
    yield from left_figures(left)


def unexplained(record: Record, faults: Faults) -> list[Failure]:
    """The failures that no killed worker explains."""
    return [failure for failure in record.failures if not any(kill.explains(failure) for kill in faults.kills)]


def error_figures(record: Record, faults: Faults) -> Iterator[Figure]:
    """Failures, those of requests that a killed worker held apart."""
    unexpected = unexplained(record, faults)
    expected = len(record.failures) - len(unexpected)
    yield Figure("errors", len(unexpected), "requests", NONE, "that no killed worker explains")
    yield Figure("errors_of_kills", expected, "requests", note="a killed worker held the request or its sequence")


def fault_figures(faults: Faults) -> Iterator[Figure]:
    """Reloads and kills."""
    slowest_s = max((reload.seconds for reload in faults.reloads), default=0.0)
    back_s = max(((kill.back_ns - kill.killed_ns) / 1e9 for kill in faults.kills), default=0.0)
    yield Figure(
        "reloads",
        len(faults.reloads),
        "models",
        Bound(">=", 1),
        f"the slowest {slowest_s:.2f} s",
    )
    yield Figure("kills", len(faults.kills), "workers", Bound(">=", 1), f"ready again within {back_s:.2f} s")
    yield Figure("faults_not_overcome", len(faults.problems), "faults", NONE, "; ".join(faults.problems))


def latency_figures(record: Record, seconds: float) -> Iterator[Figure]:
    """p99 by the minute: of the last third over the first third."""
    minutes = [record.by_minute[n].percentile(99) / 1e6 for n in range(int(seconds // 60)) if record.by_minute[n].count]
    if not minutes:
        return
    third = max(1, len(minutes) // 3)
    first, last = median(minutes[:third]), median(minutes[-third:])
    bound = DRIFT if len(minutes) >= STEADY_MINUTES else None
    yield Figure("p99", median(minutes), "ms", note="the median of the minutes")
    yield Figure("p99_drift", last / first, "times", bound, f"from {first:.1f} ms in the first third to {last:.1f} ms")


def slope_figures(samples: Sequence[Sample], seconds: float) -> Iterator[Figure]:
    """Growth per hour, after the first hour or in the second half of a shorter run."""
    if not samples:
        return
    is_long = seconds >= LONG_S
    since_s = samples[0].at_s + (WARM_S if is_long else seconds / 2)
    late = [sample for sample in samples if sample.at_s >= since_s]
    note = "after the first hour" if is_long else "second half; too short for a bound"
    bound = SLOPE if is_long else None
    greatest = max(sample.rss_bytes for sample in samples) / MIB
    yield Figure(
        "rss_slope", slope_per_hour(late, lambda s: s.rss_bytes / 1e6), "MB/h", bound, f"{note}; to {greatest:.0f} MiB"
    )
    yield Figure(
        "workers_rss_slope", slope_per_hour(late, lambda s: (s.tree_bytes - s.rss_bytes) / 1e6), "MB/h", note=note
    )
    yield Figure("descriptors_slope", slope_per_hour(late, lambda s: s.descriptors), "1/h", bound, note)
    yield Figure("threads_slope", slope_per_hour(late, lambda s: s.threads), "1/h", bound, note)
    yield Figure("shared_memory_slope", slope_per_hour(late, lambda s: s.shared_bytes / 1e6), "MB/h", bound, note)


def left_figures(left: Leftovers) -> Iterator[Figure]:
    """What must be gone."""
    before, after = left.quiet_before, left.quiet_after
    for name, first, last in (
        ("descriptors", before.descriptors, after.descriptors),
        ("threads", before.threads, after.threads),
    ):
        note = f"of the server without load: {first} before, {last} after"
        yield Figure(f"{name}_left", max(0, last - first), name, NONE, note)
    grown = (after.rss_bytes - before.rss_bytes) / MIB
    yield Figure("rss_grown", grown, "MiB", note=f"of the server without load, to {after.rss_bytes / MIB:.0f} MiB")
    yield Figure("in_flight_left", left.in_flight, "requests", NONE, "and bytes, as the metrics count them")
    yield Figure("processes_left", left.processes, "processes", NONE, "of the server after its end")
    yield Figure("shared_memory_left", left.shared_memory, "files", NONE, "in /dev/shm after its end")
    note = f"in its folder for temporary files {' '.join(left.temporary)}".rstrip()
    yield Figure("temporary_left", len(left.temporary), "files", NONE, note)
    yield Figure("exit_code", left.exit_code, "", NONE, "of the server")
    yield Figure("tracebacks", left.tracebacks, "lines", NONE, "in the log of the server")


def cause_lines(failures: list[Failure]) -> list[str]:
    """One line for each cause of failures, the most frequent first."""
    counts: Counter[tuple[str, str]] = by_cause(failures)
    return [f"{count} x {target}: {cause}" for (target, cause), count in counts.most_common()]


def target_lines(record: Record, seconds: float) -> list[str]:
    """One line for each model: its rate and its latencies."""
    return [_target_line(name, histogram, seconds) for name, histogram in record.by_target.items()]


def _target_line(name: str, histogram: DurationHistogram, seconds: float) -> str:
    p50_ms, p99_ms = (histogram.percentile(percent) / 1e6 for percent in (50, 99))
    return f"{name:<22} {histogram.count / seconds:8.1f}/s  p50 {p50_ms:7.2f} ms  p99 {p99_ms:7.2f} ms"
