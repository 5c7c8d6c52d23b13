"""When each response to a request of a decoupled model came, and what that adds to the statistics of its model."""

from __future__ import annotations

from time import monotonic_ns

from naiad.errors import CancelledError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.request import InferRequest
from naiad.telemetry.metrics.model_statistics import MAX_PLACES, ModelStatistics, ResponseStatistics


class _OpenResponses:
    """How far the responses to one request are."""

    __slots__ = ("last_ns", "output_ns", "place")

    def __init__(self, begun_ns: int) -> None:
        self.place = 0
        self.last_ns = begun_ns
        self.output_ns = 0


class ResponseTimes:
    """Times the responses to all requests that have had some response, but not their last.

    A response lasts from the end of the one before it, or from the beginning of the request's run; its outputs are made
    from ``Response.output_ns`` on.
    """

    __slots__ = ("_courses", "_statistics")

    def __init__(self, statistics: ModelStatistics) -> None:
        self._statistics = statistics
        self._courses: dict[InferRequest, _OpenResponses] = {}

    def count(self, request: InferRequest, response: Response, batch: Batch) -> int:
        """Count one response, or the end; returns the nanoseconds that the outputs of all responses took so far."""
        now_ns = monotonic_ns()
        course = self._courses.get(request)
        if course is None:
            course = _OpenResponses(batch.input_ns)
            if self._statistics.latencies is not None:
                self._statistics.latencies.first(now_ns - request.received_ns)
            # A request whose only response this is needs no entry.
            if not response.final:
                self._courses[request] = course
        elif response.final:
            del self._courses[request]
        begun_ns = course.last_ns
        course.last_ns = now_ns
        if course.place < MAX_PLACES:
            self._count(course, response, begun_ns, now_ns)
        # Later places have no statistics of their own, but their outputs count for the request.
        elif response.output_ns:
            course.output_ns += now_ns - response.output_ns
        return course.output_ns

    def forget(self, request: InferRequest) -> None:
        """Forget a request that is queued again: its times begin anew."""
        self._courses.pop(request, None)

    def _count(self, course: _OpenResponses, response: Response, begun_ns: int, now_ns: int) -> None:
        outputs, error = response.outputs, response.error
        if outputs is None and error is None and response.final and not response.is_cancelled:
            # Only the end.
            return
        output_ns = now_ns - max(begun_ns, response.output_ns) if response.output_ns else 0
        infer_ns = now_ns - begun_ns - output_ns
        course.output_ns += output_ns
        found = self._at(course.place)
        course.place += 1
        if response.is_cancelled or isinstance(error, CancelledError):
            found.count_cancel(infer_ns + output_ns)
        elif error is not None:
            found.count_failure(infer_ns, output_ns)
        elif outputs:
            found.count_success(infer_ns, output_ns)
        else:
            found.count_empty(infer_ns + output_ns)

    def _at(self, place: int) -> ResponseStatistics:
        responses = self._statistics.responses
        if place == len(responses):
            responses.append(ResponseStatistics())
        return responses[place]
