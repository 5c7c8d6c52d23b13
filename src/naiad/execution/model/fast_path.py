"""The fast path through a model: an inline instance runs one request at once, without a queue or a batch.

Such a request costs mostly its counting, so uniform requests are counted apart, and added to the statistics when these
are read.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns

from naiad.clock import Clock
from naiad.config.spec import ModelSpec
from naiad.request import InferRequest
from naiad.telemetry.metrics.latencies import Latencies
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.metrics.recent_latencies import RecentLatencies
from naiad.telemetry.tracing.settings_store import Sampler
from naiad.telemetry.tracing.w3c import TRACEPARENT

_NS_PER_MS = 1_000_000
_WATCHED_MASK = 7


def may_run_directly(spec: ModelSpec) -> bool:
    """Whether the tensors of a model need no change on their way in or out."""
    if spec.assembly is not None:
        return False
    return not any(t.reshape for tensors in (spec.inputs, spec.outputs) for t in tensors.values())


class InlineRunner:
    """Runs requests with ``execute``, the method of an inline instance.

    Attributes:
        statistics: of the model, without what ``settle`` has still to add.
    """

    __slots__ = (
        "_clock",
        "_count",
        "_execute",
        "_infer_ns",
        "_last_ns",
        "_queue_ns",
        "_request_ns",
        "_rows",
        "statistics",
    )

    def __init__(self, execute: Callable[..., object], statistics: ModelStatistics, clock: Clock) -> None:
        self._execute = execute
        self._clock = clock
        self.statistics = statistics
        self._rows = self._count = self._request_ns = self._queue_ns = self._infer_ns = self._last_ns = 0

    def run(self, request: InferRequest, failed: Callable[[InferRequest], object]) -> bool:
        """Run one request and respond to it; False when the run failed, which changes nothing.

        ``failed`` is called with a request whose response could not be sent.
        """
        begun_ns = monotonic_ns()
        options = request.options
        try:
            outputs = self._execute(request.inputs, options.outputs)
        except Exception:
            # It runs again through the queue, where the caller gets the error.
            return False
        done_ns = monotonic_ns()
        if options.rows != self._rows:
            # One sum holds only requests with equal rows.
            self.settle()
            self._rows = options.rows
        self._count += 1
        self._request_ns += done_ns - request.received_ns
        self._queue_ns += begun_ns - request.queued_ns
        self._infer_ns += done_ns - begun_ns
        self._last_ns = done_ns
        try:
            request.respond(outputs, None)  # type: ignore[arg-type]
        except Exception:
            failed(request)
        return True

    def settle(self) -> None:
        """Add the requests counted so far to the statistics."""
        count = self._count
        if not count:
            return
        rows = self._rows
        self.statistics.count_singles(count, rows, self._request_ns, self._queue_ns, self._infer_ns)
        # The wall clock is read once here rather than with each request.
        since_ms = (monotonic_ns() - self._last_ns) // _NS_PER_MS
        self.statistics.last_inference_ms = self._clock.wall_ms() - since_ms
        self._count = self._request_ns = self._queue_ns = self._infer_ns = 0

    def sampled(self, sampler: Sampler | None) -> InlineRunner:
        """The runner to continue with when ``sampler`` chooses requests to be traced; None chooses none."""
        self.settle()
        runner = inline_runner(self._execute, self.statistics, self._clock)
        return runner if sampler is None else SampledInlineRunner(runner, sampler)


class MeasuredInlineRunner(InlineRunner):
    """Notes the latencies of each request."""

    __slots__ = ("_latencies",)

    def __init__(
        self, execute: Callable[..., object], statistics: ModelStatistics, clock: Clock, latencies: Latencies
    ) -> None:
        super().__init__(execute, statistics, clock)
        self._latencies = latencies

    def run(self, request: InferRequest, failed: Callable[[InferRequest], object]) -> bool:
        request_ns, queue_ns, infer_ns = self._request_ns, self._queue_ns, self._infer_ns
        count = self._count
        if not super().run(request, failed):
            return False
        if self._count == count + 1:
            self._latencies.one(
                self._request_ns - request_ns, self._queue_ns - queue_ns, 0, self._infer_ns - infer_ns, 0
            )
        else:
            # Other rows began a sum of their own, which has this request alone.
            self._latencies.one(self._request_ns, self._queue_ns, 0, self._infer_ns, 0)
        return True


class WatchedInlineRunner(InlineRunner):
    """Notes the latency of every eighth request: somebody watches, and the others should not pay for it."""

    __slots__ = ("_latencies",)

    def __init__(
        self, execute: Callable[..., object], statistics: ModelStatistics, clock: Clock, latencies: RecentLatencies
    ) -> None:
        super().__init__(execute, statistics, clock)
        self._latencies = latencies

    def run(self, request: InferRequest, failed: Callable[[InferRequest], object]) -> bool:
        has_run = InlineRunner.run(self, request, failed)
        # The first after the statistics were read is among them.
        if self._count & _WATCHED_MASK == 1 and has_run:
            self._latencies.one(self._last_ns - request.received_ns, 0, 0, 0, 0)
        return has_run


class SampledInlineRunner(InlineRunner):
    """Leaves the requests that are to be traced to the queue, where they are."""

    __slots__ = ("_runner", "_sampler")

    def __init__(self, runner: InlineRunner, sampler: Sampler) -> None:
        super().__init__(runner._execute, runner.statistics, runner._clock)
        self._runner = runner
        self._sampler = sampler

    def run(self, request: InferRequest, failed: Callable[[InferRequest], object]) -> bool:
        sampler = self._sampler
        # ``passes_over`` counts the request, so the caller's own trace is looked for first.
        if sampler.takes_parents and TRACEPARENT in request.headers():
            return False
        return sampler.passes_over() and self._runner.run(request, failed)

    def settle(self) -> None:
        self._runner.settle()


def inline_runner(execute: Callable[..., object], statistics: ModelStatistics, clock: Clock) -> InlineRunner:
    """The runner for a model whose requests are not traced."""
    latencies = statistics.latencies
    if latencies is None:
        return InlineRunner(execute, statistics, clock)
    if isinstance(latencies, RecentLatencies):
        return WatchedInlineRunner(execute, statistics, clock, latencies)
    return MeasuredInlineRunner(execute, statistics, clock, latencies)
