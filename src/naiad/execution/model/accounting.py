"""Accounting: adds a finished batch to the statistics of its model, once for all its requests or for one of them."""

from __future__ import annotations

from time import monotonic_ns

from naiad.execution.batching.batch import Batch
from naiad.request import InferRequest
from naiad.scheduling.admission import RequestBudget
from naiad.telemetry.metrics.model_statistics import ModelStatistics


def count_batch(
    statistics: ModelStatistics,
    budget: RequestBudget,
    batch: Batch,
    wall_ms: int,
) -> int:
    """Count a batch that succeeded, once for all its callers, which leave the budget.

    Args:
        wall_ms: the wall clock's time in milliseconds.

    Returns:
        The monotonic time that was counted to, in nanoseconds.
    """
    requests, latencies = batch.callers, statistics.latencies
    now_ns, count = monotonic_ns(), batch.count
    received: list[int] = []
    queued: list[int] = []
    if count == len(requests) and (latencies is None or count == 1):
        received_ns = queued_ns = held_bytes = 0
        # One loop for all of it: this is done for every request.
        for request in requests:
            received_ns += request.received_ns
            queued_ns += request.queued_ns
            held_bytes += request.held_bytes
    else:
        if count == len(requests):
            received = [request.received_ns for request in requests]
            queued = [request.queued_ns for request in requests]
        else:
            for request in requests:
                request.note_arrival(received, queued)
        received_ns, queued_ns = sum(received), sum(queued)
        held_bytes = sum([request.held_bytes for request in requests])
    # What ``ModelResponder.release`` does for one request.
    budget.requests -= count
    budget.bytes -= held_bytes
    input_ns = batch.gather_ns + batch.input_ns - batch.start_ns
    times = (input_ns, batch.infer_ns - batch.input_ns, batch.end_ns - batch.infer_ns)
    begun_ns = batch.start_ns - batch.gather_ns
    request_ns, queue_ns = count * now_ns - received_ns, count * begun_ns - queued_ns
    statistics.count_execution(batch.rows, *times)
    # Without the empty rows of sequences, where each request has one row.
    statistics.count_success(count, batch.rows if batch.splits else count, request_ns, queue_ns, *times)
    statistics.last_inference_ms = wall_ms
    if latencies is not None:
        if count == 1:
            latencies.one(request_ns, queue_ns, *times)
        elif count:
            latencies.batch(received, queued, now_ns, begun_ns, *times)
    return now_ns


def count_one(
    statistics: ModelStatistics, request: InferRequest, batch: Batch, wall_ms: int, output_ns: int = 0
) -> int:
    """Count one request of a batch, which succeeded.

    Args:
        output_ns: how long its outputs took to make.

    Returns:
        The monotonic time that was counted to, in nanoseconds.
    """
    now_ns = monotonic_ns()
    times = (
        now_ns - request.received_ns,
        max(0, batch.start_ns - request.queued_ns),
        batch.input_ns - batch.start_ns,
        now_ns - batch.input_ns - output_ns,
        output_ns,
    )
    statistics.count_success(1, request.options.rows, *times)
    statistics.last_inference_ms = wall_ms
    if statistics.latencies is not None:
        statistics.latencies.one(*times)
    return now_ns


def count_failed_execution(statistics: ModelStatistics, batch: Batch, wall_ms: int) -> None:
    """Count a run that failed as an execution; stages that it did not reach took no time.

    Args:
        wall_ms: the wall clock's time in milliseconds.
    """
    statistics.last_inference_ms = wall_ms
    done_ns = batch.infer_ns or batch.end_ns
    statistics.count_execution(
        batch.rows,
        batch.gather_ns + batch.input_ns - batch.start_ns,
        done_ns - batch.input_ns,
        batch.end_ns - done_ns,
    )
