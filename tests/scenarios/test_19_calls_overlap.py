"""A hundred concurrent calls through a model that calls another: the queue builds on the slow model only."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from support.python_models import DOUBLES, Client, client_of, write_python_model

CALLERS = 100
BATCH = 10
SLOW_S = 0.1
SLOW = DOUBLES.replace("answers = []", f"answers = []; time.sleep({SLOW_S})")
CALLS = """
import asyncio

class TritonPythonModel:
    async def execute(self, requests):
        return await asyncio.gather(*[self.answer(r) for r in requests])

    async def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        call = pb_utils.InferenceRequest(
            model_name="slow", requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)])
        y = pb_utils.get_output_tensor_by_name(await call.async_exec(), "Y")
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y.as_numpy() + 1)])
"""
DECOUPLED = """
class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            call = pb_utils.InferenceRequest(
                model_name="slow", requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)])
            y = pb_utils.get_output_tensor_by_name(await call.async_exec(), "Y")
            response = pb_utils.InferenceResponse([pb_utils.Tensor("Y", y.as_numpy() + 1)])
            request.get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@contextmanager
def queues(client: Client) -> Iterator[list[dict[str, int]]]:
    """How many requests wait for each model, looked at again and again meanwhile."""
    seen: list[dict[str, int]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            page = client.server.metrics_page()
            lines = [li for li in page.splitlines() if li.startswith("nv_inference_pending_request_count{")]
            seen.append({li.split('model="')[1].partition('"')[0]: int(float(li.split()[-1])) for li in lines})

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def ask_in_threads(client: Client, pool: ThreadPoolExecutor) -> list[float]:
    return list(pool.map(lambda n: float(client.infer("calls", n)[0, 0]), range(CALLERS)))


def ask_over_a_stream(client: Client, pool: ThreadPoolExecutor) -> list[float]:
    answers: Queue[Any] = Queue()
    client.grpc.start_stream(lambda result, error: answers.put((result, error)))
    for n in range(CALLERS):
        given = tritonclient.grpc.InferInput("X", [1, 1], "FP32")
        given.set_data_from_numpy(np.array([[n]], np.float32))
        client.grpc.async_stream_infer("decoupled", [given])
    found = [answers.get(timeout=20) for _ in range(CALLERS)]
    client.grpc.stop_stream()
    assert all(error is None for _, error in found)
    return [float(result.as_numpy("Y")[0, 0]) for result, _ in found]


# What a hundred callers take is measured.
@pytest.mark.slow
@pytest.mark.serial
def test_the_queue_builds_on_the_slow_model_only(tmp_path: Path) -> None:
    models = tmp_path / "models"
    batching = "dynamic_batching { }"
    write_python_model(models, "slow", SLOW, f"max_batch_size: {BATCH} {batching}")
    write_python_model(models, "calls", CALLS, f"max_batch_size: 128 {batching}")
    policy = "model_transaction_policy { decoupled: true }"
    write_python_model(models, "decoupled", DECOUPLED, f"max_batch_size: 8 {policy}")
    with client_of(models, tmp_path / "log") as client, ThreadPoolExecutor(CALLERS) as pool:
        for ask in (ask_in_threads, ask_over_a_stream):
            begun = time.monotonic()
            with queues(client) as seen:
                found = ask(client, pool)
            took = time.monotonic() - begun
            assert sorted(found) == [2 * n + 1 for n in range(CALLERS)]
            # One after the other it would be 10 s; in full batches it is 1 s.
            assert took < CALLERS * SLOW_S / 2
            # In default mode a batch has to end before the next begins. In decoupled mode nothing waits for that.
            assert any(s["slow"] >= CALLERS // 3 and not s["decoupled"] for s in seen)
