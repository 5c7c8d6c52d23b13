"""Counters of one model version: written once per batch by the event loop, read by statistics and metrics.

Source: protocol extension "statistics". All durations are nanoseconds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from naiad.telemetry.metrics.latencies import Latencies
    from naiad.telemetry.metrics.recent_latencies import RecentLatencies

FAILURE_REASONS = ("OTHER", "REJECTED", "CANCELED", "BACKEND")

MAX_PLACES: Final = 1024
"""The number of responses to a request that have counters of their own; a request may have any number of responses."""


@dataclass(slots=True)
class Duration:
    """How often something happened and how long it took in all."""

    count: int = 0
    ns: int = 0

    def add(self, count: int, ns: int) -> None:
        self.count += count
        self.ns += ns


@dataclass(slots=True)
class BatchStatistics:
    """The executions of one batch size."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


@dataclass(slots=True)
class ResponseStatistics:
    """The responses of a decoupled model at one place: the first to each request, the second, and so on.
    ``compute_output`` counts only responses that have outputs.
    """

    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    empty_response: Duration = field(default_factory=Duration)
    cancel: Duration = field(default_factory=Duration)

    def count_success(self, infer_ns: int, output_ns: int) -> None:
        """A response with outputs."""
        self.compute_infer.add(1, infer_ns)
        self.compute_output.add(1, output_ns)
        self.success.add(1, infer_ns + output_ns)

    def count_failure(self, infer_ns: int, output_ns: int) -> None:
        """An error; ``output_ns`` is 0 when it came before there were outputs."""
        self.compute_infer.add(1, infer_ns)
        if output_ns:
            self.compute_output.add(1, output_ns)
        self.fail.add(1, infer_ns + output_ns)

    def count_empty(self, infer_ns: int) -> None:
        """A response without outputs."""
        self.compute_infer.add(1, infer_ns)
        self.empty_response.add(1, infer_ns)

    def count_cancel(self, ns: int) -> None:
        """A response that is not sent, since its request was cancelled."""
        self.cancel.add(1, ns)


# Compared by identity, so that figures can be kept for it; nothing else refers to them.
@dataclass(slots=True, eq=False, weakref_slot=True)
class ModelStatistics:
    """Counters of one model version since it was loaded.

    ``success`` and ``failure`` count requests; ``inference_count`` counts batch items of requests that succeeded;
    ``execution_count`` counts runs of the model; the ``compute_*`` durations count once per request of a batch, as the
    protocol defines them, and ``batches`` once per run. ``responses`` counts the responses of a decoupled model by
    their places. ``pending`` is the number of requests in the queue now, and ``memory_bytes`` the memory of the version
    at its last measurement. ``left`` counts the batches of a model with dynamic batching by the reason for which they
    left the queue, and their rows. ``latencies`` has the distributions of the durations; None where they are not kept.
    """

    success: Duration = field(default_factory=Duration)
    failure: Duration = field(default_factory=Duration)
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAILURE_REASONS, 0))
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    cache_hit: Duration = field(default_factory=Duration)
    cache_miss: Duration = field(default_factory=Duration)
    inference_count: int = 0
    execution_count: int = 0
    last_inference_ms: int = 0
    pending: int = 0
    load_seconds: float = 0.0
    memory_bytes: int = 0
    batches: dict[int, BatchStatistics] = field(default_factory=dict)
    responses: list[ResponseStatistics] = field(default_factory=list)
    left: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    latencies: Latencies | RecentLatencies | None = None

    def count_failure(self, reason: str, ns: int) -> None:
        """A request that failed after ``ns``; ``reason`` is one of ``FAILURE_REASONS``."""
        self.failures[reason] += 1
        self.failure.add(1, ns)
        if self.latencies is not None:
            self.latencies.failed(ns)

    def count_execution(self, rows: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """One run of the model over ``rows`` batch items."""
        self.execution_count += 1
        batch = self.batches.get(rows)
        if batch is None:
            batch = self.batches[rows] = BatchStatistics()
        batch.compute_input.add(1, input_ns)
        batch.compute_infer.add(1, infer_ns)
        batch.compute_output.add(1, output_ns)

    def count_success(
        self, requests: int, rows: int, request_ns: int, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int
    ) -> None:
        """``requests`` requests with ``rows`` items that one run executed.

        ``request_ns`` and ``queue_ns`` are sums over the requests; the other three are times of the run, which count
        for each request.
        """
        self.inference_count += rows
        self.success.add(requests, request_ns)
        self.queue.add(requests, queue_ns)
        self.compute_input.add(requests, requests * input_ns)
        self.compute_infer.add(requests, requests * infer_ns)
        self.compute_output.add(requests, requests * output_ns)

    def count_alone(
        self, rows: int, request_ns: int, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int
    ) -> None:
        """A request of ``rows`` items executed by a run of its own: ``count_execution`` and ``count_success`` in one.

        Inlined for speed: ensembles call it for every request.
        """
        batch = self.batches.get(rows)
        if batch is None:
            batch = self.batches[rows] = BatchStatistics()
        self.execution_count += 1
        self.inference_count += rows
        for duration, ns in (
            (batch.compute_input, input_ns),
            (batch.compute_infer, infer_ns),
            (batch.compute_output, output_ns),
            (self.success, request_ns),
            (self.queue, queue_ns),
            (self.compute_input, input_ns),
            (self.compute_infer, infer_ns),
            (self.compute_output, output_ns),
        ):
            duration.count += 1
            duration.ns += ns
        if self.latencies is not None:
            self.latencies.one(request_ns, queue_ns, input_ns, infer_ns, output_ns)

    def count_cache_hit(self, request_ns: int, queue_ns: int, lookup_ns: int) -> None:
        """A request with a response from the cache: a success, and no inference."""
        self.success.add(1, request_ns)
        self.queue.add(1, queue_ns)
        self.cache_hit.add(1, lookup_ns)
        if self.latencies is not None:
            self.latencies.cached(request_ns, queue_ns, lookup_ns)

    def count_cache_miss(self, ns: int) -> None:
        """A response that was looked up in vain, and put into the cache if it has room; ``ns`` is the time of both."""
        self.cache_miss.add(1, ns)
        if self.latencies is not None:
            self.latencies.missed(ns)

    def count_singles(self, requests: int, rows: int, request_ns: int, queue_ns: int, infer_ns: int) -> None:
        """``requests`` requests of ``rows`` items, each executed by a run of its own; the times are sums over all."""
        self.count_execution(rows, 0, infer_ns, 0)
        # The line above counted one run, with the times of all; here are the others.
        batch = self.batches[rows]
        for duration in (batch.compute_input, batch.compute_infer, batch.compute_output):
            duration.count += requests - 1
        self.execution_count += requests - 1
        self.inference_count += requests * rows
        self.success.add(requests, request_ns)
        self.queue.add(requests, queue_ns)
        self.compute_infer.add(requests, infer_ns)
        self.compute_input.add(requests, 0)
        self.compute_output.add(requests, 0)
