"""What a model counts, and whether the times fit each other."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from naiad.backend_api.backend import Arrays
from naiad.config.spec import BatchingSpec
from naiad.execution.model.loaded_model import LoadedModel
from naiad.telemetry.metrics.model_statistics import FAILURE_REASONS, ModelStatistics
from support.event_loops import WAIT_S, run, until
from support.loaded_models import Caller, FunctionBackend, loaded, negate, spec

RUN_S = 0.01
BATCHING = BatchingSpec((8,))


def slow(inputs: Arrays, outputs: object) -> Arrays:
    time.sleep(RUN_S)
    if 7.0 in inputs["x"]:
        raise RuntimeError("boom")
    return negate(inputs, ("y",))


async def ask(model: LoadedModel, *callers: Caller) -> int:
    """Submit all in one turn of the loop and wait for the answers; nanoseconds that took."""
    begun = time.monotonic_ns()
    for caller in callers:
        model.submit(caller)
    await asyncio.gather(*(c.done.wait() for c in callers))
    return time.monotonic_ns() - begun


def test_the_times_of_one_request_add_up() -> None:
    async def test() -> None:
        with loaded(spec(), slow) as model:
            took_ns = await ask(model, Caller(1, 2))
            found = model.statistics
            parts = [found.queue, found.compute_input, found.compute_infer, found.compute_output]
            assert [found.success.count, *(p.count for p in parts)] == [1] * 5
            assert all(p.ns >= 0 for p in parts)
            assert sum(p.ns for p in parts) <= found.success.ns <= took_ns + 5_000_000
            assert found.compute_infer.ns >= RUN_S * 1e9
            assert (found.inference_count, found.execution_count) == (2, 1)
            assert list(found.batches) == [2]
            assert abs(found.last_inference_ms - time.time() * 1000) < 60_000

    run(test())


def test_a_batch_counts_its_times_for_each_request() -> None:
    async def test() -> None:
        with loaded(spec(batching=BATCHING), slow) as model:
            await ask(model, Caller(1), Caller(2, 3), Caller(4))
            found = model.statistics
            (batch,) = found.batches.values()
            assert list(found.batches) == [4]
            assert (found.success.count, found.inference_count, found.execution_count) == (3, 4, 1)
            assert (found.compute_infer.count, batch.compute_infer.count) == (3, 1)
            assert found.compute_input.ns == 3 * batch.compute_input.ns
            assert found.compute_infer.ns == 3 * batch.compute_infer.ns
            assert found.compute_output.ns == 3 * batch.compute_output.ns
            assert found.queue.count == 3
            assert found.queue.ns + 3 * batch.compute_infer.ns <= found.success.ns

    run(test())


def test_waiting_is_counted_as_queue_time() -> None:
    async def test() -> None:
        with loaded(spec(), slow) as model:
            await ask(model, Caller(1), Caller(2), Caller(3))
            # The second waits for one run, the third for two.
            assert model.statistics.queue.ns >= 3 * RUN_S * 1e9
            assert model.statistics.queue.ns < model.statistics.success.ns

    run(test())


def test_a_failed_run_is_an_execution_and_no_inference() -> None:
    async def test() -> None:
        with loaded(spec(), slow) as model:
            await ask(model, Caller(7))
            found = model.statistics
            assert (found.success.count, found.failure.count) == (0, 1)
            assert found.failures == {**dict.fromkeys(FAILURE_REASONS, 0), "BACKEND": 1}
            assert found.failure.ns >= RUN_S * 1e9
            assert (found.inference_count, found.execution_count) == (0, 1)
            assert found.queue.count == found.compute_infer.count == 0
            assert found.batches[1].compute_infer.ns >= RUN_S * 1e9
            assert found.last_inference_ms > 0

    run(test())


def test_a_split_batch_counts_every_run() -> None:
    async def test() -> None:
        with loaded(spec(batching=BATCHING), slow) as model:
            await ask(model, Caller(1), Caller(7), Caller(2, 3))
            found = model.statistics
            assert (found.success.count, found.failure.count) == (2, 1)
            assert found.inference_count == 3
            assert found.execution_count == 5, "the batch of 4 rows, its halves of 1 and 3, and those of the latter"
            runs = {rows: b.compute_infer.count for rows, b in sorted(found.batches.items())}
            assert runs == {1: 2, 2: 1, 3: 1, 4: 1}
            # Both waited for the run that failed.
            assert found.queue.ns >= 2 * RUN_S * 1e9

    run(test())


@pytest.mark.parametrize("count", [1, 3])
def test_requests_that_wait_are_pending(count: int) -> None:
    may_end = threading.Event()

    def held(inputs: Arrays, outputs: object) -> Arrays:
        assert may_end.wait(WAIT_S)
        return negate(inputs, ("y",))

    async def test() -> None:
        with loaded(spec(count=count), FunctionBackend(lambda index: held)) as model:
            callers = [Caller(i) for i in range(8, 13)]
            for caller in callers:
                model.submit(caller)
            assert model.in_flight == 5
            # At once, unless the machine stops this process between two of them: the next turn has the rest.
            await until(lambda: model.statistics.pending == 5 - count)
            may_end.set()
            await asyncio.gather(*(c.done.wait() for c in callers))
            assert (model.statistics.pending, model.in_flight) == (0, 0)

    run(test())


def test_the_arithmetic_itself() -> None:
    found = ModelStatistics()
    found.count_execution(4, 10, 20, 30)
    found.count_success(3, 4, 1000, 90, 10, 20, 30)
    found.count_execution(4, 1, 2, 3)
    found.count_failure("REJECTED", 5)
    assert (found.success.count, found.success.ns) == (3, 1000)
    assert (found.queue.count, found.queue.ns) == (3, 90)
    times = [found.compute_input, found.compute_infer, found.compute_output]
    assert [(t.count, t.ns) for t in times] == [(3, 30), (3, 60), (3, 90)]
    batch = found.batches[4]
    assert [(t.count, t.ns) for t in (batch.compute_input, batch.compute_infer, batch.compute_output)] == [
        (2, 11),
        (2, 22),
        (2, 33),
    ]
    assert (found.inference_count, found.execution_count) == (4, 2)
    assert (found.failure.count, found.failure.ns, found.failures["REJECTED"]) == (1, 5, 1)
