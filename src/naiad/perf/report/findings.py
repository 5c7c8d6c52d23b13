"""What the figures mean: where the time goes and what usually helps, what limits the client, whether batching gains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from naiad.perf.report.figures import LatencyParts, latency_parts, level_name, shown_levels, six_digits
from naiad.perf.results import LevelResult, Report, ServerParts, Window

REMEDIES: Final = {
    "client": "Naiad's client needs this time: send binary tensors, send less, or raise --client-workers",
    "schedule": "requests wait for their turn in the client: raise --client-workers or lower the rate",
    "event loop": "the load and the model take turns on one event loop here: fewer in flight, or measure a server",
    "network": "binary tensors, compression over slow links, shared memory on one machine, or free cores on both sides",
    "server overhead": "the server's own handling: fewer and larger requests, binary tensors, or more cores for it",
    "queue": "requests wait for an instance: more instances (instance_group), dynamic batching, or fewer in flight",
    "cache": "the response cache costs more than the model: turn it off, or use a local cache",
    "compute": "the model itself: larger batches, more threads for each instance, a smaller type, or a faster device",
}
"""What usually helps, by the part of the latency that is largest."""

_GAIN: Final = 1.1
"""Batching gains when it makes the model at least so many times as fast: less is lost in the noise of a run."""


@dataclass(frozen=True, slots=True)
class Contributor:
    """The largest part of the average latency.

    Attributes:
        share: of the latency, 0 to 1.
    """

    name: str
    us: float
    total_us: float

    @property
    def share(self) -> float:
        """Its share of the whole latency, 0 to 1."""
        return self.us / self.total_us if self.total_us else 0.0

    @property
    def remedy(self) -> str:
        """What usually makes it smaller."""
        return REMEDIES[self.name]


def contributors(parts: LatencyParts) -> dict[str, float]:
    """The parts of the latency in microseconds under the names that have a remedy."""
    return {
        "client": parts.client_send + parts.client_receive,
        "schedule": parts.schedule,
        "event loop": parts.event_loop,
        "network": parts.network,
        "server overhead": parts.server_overhead,
        "queue": parts.queue,
        "cache": parts.cache,
        "compute": parts.compute_input + parts.compute_infer + parts.compute_output,
    }


def largest_contributor(window: Window) -> Contributor | None:
    """The largest part of the latency; None without requests, or when the server gave no figures."""
    if not window.requests or window.server is None or not window.server.successes:
        return None
    found = contributors(latency_parts(window))
    name = max(found, key=found.__getitem__)
    total = sum(found.values())
    return Contributor(name, found[name], total) if total else None


def mean_batch(server: ServerParts) -> float:
    """Inferences of each execution; 0 when nothing ran."""
    return server.inferences / server.executions if server.executions else 0.0


def batching_text(levels: list[LevelResult]) -> str:
    """Whether batches that the server formed made its model faster; empty when the levels cannot tell.

    The statistics hold each execution's time once for every request in it, so the mean over the requests is the time
    of one execution. A batch of twice the size in less than twice the time is the gain.
    """
    measured = [
        (mean_batch(server), server.compute_infer_ns / runs, result)
        for result in shown_levels(levels)
        if (server := result.merged.server) is not None and not server.composing
        if (runs := server.successes - server.cache_hits) > 0 and server.executions and server.compute_infer_ns
    ]
    if not measured:
        return ""
    small, large = min(measured, key=lambda it: it[0]), max(measured, key=lambda it: it[0])
    if large[0] < 1.05 * large[2].batch_size:
        return f"Batching: the server formed no batches (mean {six_digits(large[0])} inferences per execution)"
    if large[0] < 1.2 * small[0]:
        return f"Batching: {large[0]:.1f} inferences per execution; a level with smaller batches would show the gain"
    gain = (large[0] / large[1]) / (small[0] / small[1])
    sizes = f"{small[0]:.1f} inferences per execution ({level_name(small[2].level)})"
    sizes += f" to {large[0]:.1f} ({level_name(large[2].level)})"
    if gain < _GAIN:
        return f"Batching: gains nothing here: from {sizes} the model does {gain:.2f} times the inferences a second"
    return f"Batching: gains: from {sizes} the model does {gain:.2f} times the inferences a second of compute"


def best_level(report: Report) -> LevelResult | None:
    """The stable level with the highest rate, or the unstable one if none is stable."""
    levels = shown_levels(report.levels)
    stable = [result for result in levels if not result.unstable_reason]
    return max(stable or levels, key=lambda result: result.inference_rate, default=None)


def error_rate(window: Window) -> float:
    """Failed requests of all that were answered, 0 to 1."""
    failed = sum(window.errors.values())
    return failed / (failed + window.requests) if failed else 0.0
