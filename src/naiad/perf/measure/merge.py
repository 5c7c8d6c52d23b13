"""Windows as one: counts and sums add up, durations are pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from naiad.perf.results import ClientUsage, Second, ServerParts, Usage, Window

_SUMS = (
    *("requests", "responses", "sequences", "delayed", "sent", "output_tokens"),
    *("send_ns", "wait_ns", "receive_ns"),
)
_HISTOGRAMS = ("latency", "first_response", "between_responses", "send_delay")
_PART_SUMS = (
    *("inferences", "executions", "successes", "failures", "request_ns", "queue_ns"),
    *("compute_input_ns", "compute_infer_ns", "compute_output_ns"),
    *("cache_hits", "cache_hit_ns", "cache_misses", "cache_miss_ns"),
)
_BUSY: Final = 0.9


def merge_windows(windows: Sequence[Window]) -> Window:
    """The windows, each of which begins where the one before it ends, as one."""
    if not windows:
        return Window(0, 0)
    merged = Window(windows[0].began_ns, windows[-1].ended_ns)
    for window in windows:
        add_counts(merged, window)
        merged.seconds += _shifted(window.seconds, (window.began_ns - merged.began_ns) / 1e9)
    merged.server = sum_parts([window.server for window in windows])
    merged.usage = _merge_usage(windows)
    merged.client = _merge_client(windows)
    return merged


def add_counts(total: Window, part: Window) -> None:
    """Add the requests of a window to those of another, with their durations and errors."""
    for name in _SUMS:
        setattr(total, name, getattr(total, name) + getattr(part, name))
    for name in _HISTOGRAMS:
        getattr(total, name).merge(getattr(part, name))
    total.errors.update(part.errors)


def _shifted(seconds: Sequence[Second], by_s: float) -> list[Second]:
    return [
        Second(
            at_s=second.at_s + by_s,
            requests=second.requests,
            errors=second.errors,
            p50_us=second.p50_us,
            p95_us=second.p95_us,
            p99_us=second.p99_us,
            cpu_cores=second.cpu_cores,
            rss_bytes=second.rss_bytes,
            gpu_utilization=second.gpu_utilization,
        )
        for second in seconds
    ]


def sum_parts(all_parts: Sequence[ServerParts | None]) -> ServerParts | None:
    """The counts of several windows added up; None when a window has none."""
    known = [parts for parts in all_parts if parts is not None]
    if not known or len(known) < len(all_parts):
        return None
    total = ServerParts(known[0].model, known[0].version)
    for parts in known:
        for name in _PART_SUMS:
            setattr(total, name, getattr(total, name) + getattr(parts, name))
    for steps in zip(*[parts.composing for parts in known], strict=False):
        step = sum_parts(steps)
        if step is not None:
            total.composing.append(step)
    return total


def difference(after: ServerParts | None, before: ServerParts | None) -> ServerParts | None:
    """What a server has counted between two looks; None when it has started anew, or was not looked at."""
    if after is None or before is None or after.successes < before.successes:
        return None
    found = ServerParts(after.model, after.version)
    for name in _PART_SUMS:
        setattr(found, name, getattr(after, name) - getattr(before, name))
    earlier = {(parts.model, parts.version): parts for parts in before.composing}
    for parts in after.composing:
        step = difference(parts, earlier.get((parts.model, parts.version)))
        if step is not None:
            found.composing.append(step)
    return found


def _merge_usage(windows: Sequence[Window]) -> Usage:
    """Means by the length of the windows, sizes at their greatest."""
    found = [(window.usage, window.duration_s, window.requests) for window in windows]
    merged = Usage(source=next((usage.source for usage, _, _ in found if usage.source), ""))
    cores = [(usage.cpu_cores, length) for usage, length, _ in found if usage.cpu_cores is not None]
    length = sum(part for _, part in cores)
    if length > 0:
        merged.cpu_cores = sum(value * part for value, part in cores) / length
        requests = sum(count for usage, _, count in found if usage.cpu_cores is not None)
        if requests:
            merged.cpu_us_per_request = merged.cpu_cores * length * 1e6 / requests
    merged.rss_bytes = max((usage.rss_bytes for usage, _, _ in found if usage.rss_bytes is not None), default=None)
    for name in ("gpu_utilization", "gpu_power_watts"):
        setattr(merged, name, _means([getattr(usage, name) for usage, _, _ in found]))
    for usage, _, _ in found:
        for uuid, size in usage.gpu_memory_used_bytes.items():
            merged.gpu_memory_used_bytes[uuid] = max(size, merged.gpu_memory_used_bytes.get(uuid, 0))
        for uuid, size in usage.gpu_memory_total_bytes.items():
            merged.gpu_memory_total_bytes.setdefault(uuid, size)
    return merged


def _means(by_uuid: Sequence[dict[str, float]]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for found in by_uuid:
        for uuid, value in found.items():
            values.setdefault(uuid, []).append(value)
    return {uuid: sum(several) / len(several) for uuid, several in values.items()}


def _merge_client(windows: Sequence[Window]) -> ClientUsage:
    merged = ClientUsage(cores=max(window.client.cores for window in windows))
    length = sum(window.duration_s for window in windows)
    requests = sum(window.requests for window in windows)
    for name in ("cpu_cores", "waited_cores"):
        if length > 0:
            total = sum(getattr(window.client, name) * window.duration_s for window in windows)
            setattr(merged, name, total / length)
    if requests:
        merged.cpu_us_per_request = merged.cpu_cores * length * 1e6 / requests
    for window in windows:
        merged.loop_delay.merge(window.client.loop_delay)
    merged.serves = any(window.client.serves for window in windows)
    merged.is_bottleneck = is_client_bottleneck(merged)
    return merged


def is_client_bottleneck(client: ClientUsage) -> bool:
    """Whether a generator hardly ever waited for the server: it worked, or other programs had its processor.

    Never where the model ran in its process: the processor time is that of the model as well.
    """
    return not client.serves and client.cpu_cores + client.waited_cores >= _BUSY * client.cores
