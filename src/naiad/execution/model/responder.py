"""The responder of one model version: responds to each of its requests and counts it. Belongs to the event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic_ns

from naiad.clock import Clock
from naiad.errors import CancelledError, InternalError, NaiadError, ServerStoppingError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.request_group import RequestGroup
from naiad.execution.model.accounting import count_batch, count_failed_execution
from naiad.execution.model.cache import ModelCache
from naiad.execution.model.tracing import ModelTracer, batch_rows
from naiad.request import FROM_CACHE, Array, InferRequest, request_label
from naiad.scheduling.admission import RequestBudget
from naiad.scheduling.queue.ordered_release import OrderedRelease
from naiad.telemetry.logs.server_log import request_log
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.slow.recorder import SlowOfModel

logger = logging.getLogger("naiad")


class ModelResponder:
    """Admits, responds to and counts the requests of a model version.

    Args:
        name: the model's.
        statistics: where they are counted.
        budget: of the server.
        clock: gives the time of the last inference.
        cache: stores responses.
        ordered: delays responses that are not next; None where they may leave in any order.

    Attributes:
        in_flight: requests that were admitted or have a reserved place, and have no final response.
        open_replicas: copies of the model in other processes, which have to end before it is drained.
        has_more: whether the model is not drained even without a request in flight; None where it always is then.
        tracer: traces some of the requests; None for no traces.
        slow: looks for slow requests; None where they are not recorded.
    """

    __slots__ = (
        "_cache",
        "_drained",
        "_name",
        "budget",
        "clock",
        "has_more",
        "in_flight",
        "open_replicas",
        "ordered",
        "slow",
        "statistics",
        "tracer",
    )

    def __init__(
        self,
        name: str,
        statistics: ModelStatistics,
        budget: RequestBudget,
        clock: Clock,
        cache: ModelCache | None,
        ordered: OrderedRelease | None,
    ) -> None:
        self._name = name
        self.statistics = statistics
        self.budget = budget
        self.clock = clock
        self._cache = cache
        self.ordered = ordered
        self.in_flight = 0
        self.open_replicas = 0
        self.has_more: Callable[[], bool] | None = None
        self.tracer: ModelTracer | None = None
        self.slow: SlowOfModel | None = None
        self._drained: list[Callable[[], object]] = []

    # Admission

    def admit(self, request: InferRequest) -> None:
        """Count a request as in flight, until it gets its final response, or ``release``.

        Raises:
            QueueFullError: the server or the model has too many requests in flight; that counts as a failure.
        """
        budget = self.budget
        held = budget.bytes + request.held_bytes
        # Written out rather than asked of the budget: this is done for every request.
        if (
            held > budget.max_bytes or budget.requests >= budget.max_requests or self.in_flight >= budget.max_per_model
        ) and request.can_be_refused:
            self.check_room(request.held_bytes, request.received_ns)
        budget.bytes = held
        budget.requests += 1
        self.in_flight += 1

    def admit_group(self, group: RequestGroup) -> bool:
        """Count the requests of a group as in flight, if there is room for all of them."""
        budget, count = self.budget, group.count
        held = budget.bytes + group.held_bytes
        if held > budget.max_bytes or budget.requests + count > budget.max_requests:
            return False
        if self.in_flight + count > budget.max_per_model:
            return False
        budget.bytes = held
        budget.requests += count
        self.in_flight += count
        return True

    def check_room(self, size: int, received_ns: int) -> None:
        """Check that a request of ``size`` bytes, which came at ``received_ns``, would be admitted.

        Raises:
            QueueFullError: it would not; that counts as a failure.
        """
        error = self.budget.refusal(size, self._name, self.in_flight)
        if error is not None:
            self.statistics.count_failure(error.reason, monotonic_ns() - received_ns)
            raise error

    def release(self, request: InferRequest) -> None:
        """Count a request as in flight no more: it is about to get its final response, or was not queued."""
        self.in_flight -= 1
        self.budget.requests -= 1
        self.budget.bytes -= request.held_bytes

    # Responses

    def settle(self, batches: list[Batch]) -> None:
        """Count finished batches and respond to their requests."""
        for batch in batches:
            responded_ns = 0 if self.tracer is None else monotonic_ns()
            if batch.error is None:
                self._succeed(batch)
            else:
                count_failed_execution(self.statistics, batch, self.clock.wall_ms())
                for request in batch.singles():
                    self.fail(request, batch.error)
            if self.tracer is not None:
                self.trace(self.tracer, batch.requests, batch, responded_ns, None, batch.error)
            if self.slow is not None:
                self.slow.ran(batch)
                if batch.requests:
                    self.slow.responded(batch.requests, batch, batch.rows, batch.reason)
        # After the last response: a model that is drained gets closed.
        self.notify_drained()

    def _succeed(self, batch: Batch) -> None:
        # Before the responses: requests that follow within them find the room.
        self.count(batch)
        requests, results = batch.requests, batch.results
        if len(requests) == 1:
            self.respond(requests[0], results, None)
            return
        if batch.parts:
            for request, part in zip(requests, batch.parts, strict=True):
                self.respond(request, part, None)
            return
        row = 0
        is_special = self.ordered is not None or self._cache is not None
        items = tuple(results.items())
        name, array = items[0] if len(items) == 1 else ("", None)
        for request in requests:
            end = row + request.options.rows
            # The short form for one output saves a call per request.
            outputs = {n: a[row:end] for n, a in items} if array is None else {name: array[row:end]}
            row = end
            if is_special:
                self.respond(request, outputs, None)
                continue
            try:
                request.respond(outputs, None)
            except Exception:
                not_sent(request)

    def count(self, batch: Batch) -> int:
        """Count a batch that succeeded. Returns the time that was counted to."""
        self.in_flight -= batch.count
        return count_batch(self.statistics, self.budget, batch, self.clock.wall_ms())

    def count_execution(self, batch: Batch) -> None:
        """Count a batch whose requests are counted one by one."""
        self.statistics.count_execution(
            batch.rows, batch.input_ns - batch.start_ns, batch.infer_ns - batch.input_ns, batch.end_ns - batch.infer_ns
        )
        self.statistics.last_inference_ms = self.clock.wall_ms()

    def fail(self, request: InferRequest, error: NaiadError) -> None:
        """Respond to a request in flight with an error, and count it."""
        self.count_failure(request, error)
        self.respond(request, {}, error)

    def fail_cancelled(self, request: InferRequest) -> None:
        """Respond to a request in flight whose caller has gone."""
        self.fail(request, CancelledError(f"{request_label(request.id)}the request was cancelled by its caller"))
        self.notify_drained()

    def count_failure(self, request: InferRequest, error: NaiadError) -> None:
        """Count and log a request in flight that is about to get an error as its response."""
        self.release(request)
        self.statistics.count_failure(error.reason, monotonic_ns() - request.received_ns)
        if self.slow is not None:
            self.slow.forget(request)
        self.log_error(request, error)

    def log_error(self, request: InferRequest, error: NaiadError) -> None:
        """Log that a request failed."""
        # A caller that leaves is no fault of the server or of the model.
        level = logging.DEBUG if isinstance(error, CancelledError) else logging.WARNING
        request_log(logger, level, request.id, "failed for model '%s': %s", self._name, error, model=self._name)

    def respond(self, request: InferRequest, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Send one request its response, in its turn; it is counted elsewhere."""
        if self._cache is not None:
            self._cache.keep(request, outputs if error is None else None)
        if self.ordered is not None:
            # One slow request delays the responses of any number of later ones: these count until they leave.
            size = sum(array.nbytes for array in outputs.values())
            self.budget.take(size)
            self.ordered.release(request, partial(self._send_in_order, request, outputs, error, size))
        else:
            _send(request, outputs, error)

    def respond_each(self, requests: Sequence[InferRequest], outputs: Sequence[Mapping[str, Array]]) -> None:
        """Send each request its response, as ``respond`` does."""
        if self.ordered is not None or self._cache is not None:
            for request, arrays in zip(requests, outputs, strict=True):
                self.respond(request, arrays, None)
            return
        # Written out: saves two calls per request.
        for request, arrays in zip(requests, outputs, strict=True):
            try:
                request.respond(arrays, None)
            except Exception:
                not_sent(request)

    def respond_cached(self, request: InferRequest, outputs: Mapping[str, Array]) -> None:
        """Respond to a request from the cache, in its turn where responses keep the order of requests."""
        self.statistics.last_inference_ms = self.clock.wall_ms()
        if request.carrier:
            request.joined(FROM_CACHE)
        if self.ordered is not None:
            self.ordered.add(request)
        self.respond(request, outputs, None)
        if self.tracer is not None:
            trace = partial(self.tracer.trace_cached, request, outputs)
            if self.ordered is None or not self.ordered.when_sent(request, trace):
                trace()

    def trace(
        self,
        tracer: ModelTracer,
        requests: Sequence[InferRequest],
        batch: Batch,
        responded_ns: int,
        outputs: Sequence[Mapping[str, Array] | None] | None = None,
        error: NaiadError | None = None,
        has_run: bool = True,
    ) -> None:
        """Trace requests, as ``ModelTracer.trace`` does; a delayed response is traced when it leaves."""
        if self.ordered is None:
            tracer.trace(requests, batch, responded_ns, outputs, error, has_run)
            return
        for request, given in zip(requests, batch_rows(batch) if outputs is None else outputs, strict=True):
            later = partial(_trace_sent, tracer, request, batch, given, error, has_run)
            if not self.ordered.when_sent(request, later):
                tracer.trace((request,), batch, responded_ns, (given,), error, has_run)

    def _send_in_order(
        self, request: InferRequest, outputs: Mapping[str, Array], error: NaiadError | None, size: int
    ) -> None:
        self.budget.release(size)
        _send(request, outputs, error)

    @property
    def is_drained(self) -> bool:
        """Whether no request is in flight, nor to be waited for."""
        return self.in_flight == 0 and not self.open_replicas and (self.has_more is None or not self.has_more())

    def when_drained(self, callback: Callable[[], object]) -> None:
        """Call back as soon as the model is drained, at once when it is."""
        if self.is_drained:
            callback()
        else:
            self._drained.append(callback)

    def notify_drained(self) -> None:
        """Call back those who wait for the last response, if that was it."""
        if self._drained and self.is_drained:
            # Taken out first: a callback may wait for the next drain.
            callbacks, self._drained = self._drained, []
            for callback in callbacks:
                callback()


def stopping_error() -> ServerStoppingError:
    """The error for a request to a model that takes no further ones, with the text of the reference server."""
    return ServerStoppingError("Server is stopping, scheduler for model has stopped accepting new inference requests")


def send_part(
    request: InferRequest, outputs: Mapping[str, Array] | None, error: NaiadError | None, is_last: bool
) -> None:
    """Send a request one of any number of responses. An error there is logged and harms no other request."""
    try:
        request.respond_part(outputs, error, is_last)
    except Exception:
        request_log(logger, logging.ERROR, request.id, "the answer could not be sent", exc_info=True)


def _trace_sent(
    tracer: ModelTracer,
    request: InferRequest,
    batch: Batch,
    outputs: Mapping[str, Array] | None,
    error: NaiadError | None,
    has_run: bool,
) -> None:
    tracer.trace((request,), batch, monotonic_ns(), (outputs,), error, has_run)


def _send(request: InferRequest, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
    try:
        request.respond(outputs, error)
    except Exception:
        not_sent(request)


def not_sent(request: InferRequest) -> None:
    """Log that a response could not be sent; called while that error is handled, which must not fail other requests.

    The caller gets an error, in case it is the outputs that could not be sent.
    """
    request_log(logger, logging.ERROR, request.id, "the answer could not be sent", exc_info=True)
    try:
        request.respond({}, InternalError(f"{request_label(request.id)}the answer could not be sent, see the log"))
    except Exception:
        request_log(logger, logging.DEBUG, request.id, "nor could an error be sent", exc_info=True)
