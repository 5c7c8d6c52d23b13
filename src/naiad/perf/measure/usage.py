"""How busy the server was in a window, from looks at it before, in and after it."""

from __future__ import annotations

from collections.abc import Sequence

from naiad.perf.measure.metrics_page import MetricsSample
from naiad.perf.results import Usage, Window


def usage_between(samples: Sequence[MetricsSample], source: str, requests: int) -> Usage:
    """Means over the samples of one window, the last one before its start included; sizes at their greatest."""
    usage = Usage(source=source if samples else "")
    timed = [sample for sample in samples if sample.cpu_seconds is not None]
    if len(timed) > 1:
        passed_s = (timed[-1].at_ns - timed[0].at_ns) / 1e9
        used_s = (timed[-1].cpu_seconds or 0.0) - (timed[0].cpu_seconds or 0.0)
        if passed_s > 0 and used_s >= 0:
            usage.cpu_cores = used_s / passed_s
            usage.cpu_us_per_request = used_s * 1e6 / requests if requests else None
    usage.rss_bytes = max((sample.rss_bytes for sample in samples if sample.rss_bytes is not None), default=None)
    for sample in samples:
        for name in ("gpu_memory_used_bytes", "gpu_memory_total_bytes"):
            sizes = getattr(usage, name)
            for uuid, size in getattr(sample, name).items():
                sizes[uuid] = max(size, sizes.get(uuid, 0))
    for name in ("gpu_utilization", "gpu_power_watts"):
        values: dict[str, list[float]] = {}
        for sample in samples:
            for uuid, value in getattr(sample, name).items():
                values.setdefault(uuid, []).append(value)
        setattr(usage, name, {uuid: sum(found) / len(found) for uuid, found in values.items()})
    return usage


def note_seconds(window: Window, samples: Sequence[MetricsSample], began_ns: int) -> None:
    """Write into the seconds of a window what the samples say of them; ``began_ns`` is its start, monotonic."""
    for second in window.seconds:
        start_ns = began_ns + int(second.at_s * 1e9)
        before, after = _around(samples, start_ns, start_ns + 1_000_000_000)
        if after is None:
            continue
        second.rss_bytes = after.rss_bytes
        if after.gpu_utilization:
            second.gpu_utilization = sum(after.gpu_utilization.values()) / len(after.gpu_utilization)
        if before is None or before.cpu_seconds is None or after.cpu_seconds is None:
            continue
        passed_s = (after.at_ns - before.at_ns) / 1e9
        second.cpu_cores = (after.cpu_seconds - before.cpu_seconds) / passed_s if passed_s > 0 else None


def _around(
    samples: Sequence[MetricsSample], start_ns: int, end_ns: int
) -> tuple[MetricsSample | None, MetricsSample | None]:
    """The last sample up to the middle of a second, and the first one behind it."""
    middle = (start_ns + end_ns) // 2
    before = next((sample for sample in reversed(samples) if sample.at_ns <= middle), None)
    after = next((sample for sample in samples if sample.at_ns > middle), None)
    return before, after or before
