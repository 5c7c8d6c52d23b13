"""What is counted about a model whose instances are processes: a failure is an answer that it did not choose."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from naiad.errors import BackendError, InvalidArgumentError, UnavailableError
from support.event_loops import until
from support.noted_requests import submit
from support.worker_models import Caller, play

BATCHING = "dynamic_batching { max_queue_delay_microseconds: 20000 }"
DECOUPLED = "model_transaction_policy { decoupled: true }"
# What each request asks for is the first number of its input.
ANSWERS = """
def execute(self, requests):
    whats = [int(pb_utils.get_input_tensor_by_name(r, "x").as_numpy().flat[0]) for r in requests]
    if 9 in whats:
        raise RuntimeError("nine")
    if 8 in whats:
        os._exit(3)
    return [self.answer(r, what) for r, what in zip(requests, whats)]

def answer(self, request, what):
    error = pb_utils.TritonError("not one", pb_utils.TritonError.INVALID_ARG)
    if what == 1:
        return pb_utils.InferenceResponse(error=error)
    if what == 2:
        request.get_response_sender().send(
            pb_utils.InferenceResponse(error=error), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        )
        return None
    if what == 3:
        sender = request.get_response_sender()
        sender.send(pb_utils.InferenceResponse(error=error))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
    if what == 4:
        return None
    return pb_utils.InferenceResponse([pb_utils.Tensor("y", np.zeros((1, 1), np.float32))])
"""
SENDS = """
async def execute(self, requests):
    for request in requests:
        what = int(pb_utils.get_input_tensor_by_name(request, "x").as_numpy().flat[0])
        sender = request.get_response_sender()
        if what == 9:
            raise RuntimeError("nine")
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.zeros((1, 1), np.float32))]))
        error = pb_utils.InferenceResponse(error=pb_utils.TritonError("not one")) if what == 1 else None
        sender.send(error, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def counts(model: Any) -> dict[str, int]:
    found = model.statistics
    assert found.queue.count == found.compute_infer.count == found.success.count
    return {
        "success": found.success.count,
        "failure": found.failure.count,
        "backend": found.failures["BACKEND"],
        "inferences": found.inference_count,
        "executions": found.execution_count,
    }


@pytest.mark.parametrize("what", [1, 2, 3])
def test_an_error_that_the_model_chose_is_a_success(tmp_path: Path, what: int) -> None:
    async def test(model: Any) -> None:
        submit(model, caller := Caller(what))
        error = await caller.error()
        assert (type(error), str(error)) == (InvalidArgumentError, "not one")
        await until(lambda: model.statistics.execution_count)
        assert counts(model) == {"success": 1, "failure": 0, "backend": 0, "inferences": 1, "executions": 1}
        assert model.in_flight == 0
        assert model.statistics.last_inference_ms > 0

    play(tmp_path, test, ANSWERS)


@pytest.mark.parametrize("what", [4, 9])
def test_an_answer_that_the_model_did_not_choose_is_a_failure(tmp_path: Path, what: int) -> None:
    async def test(model: Any) -> None:
        submit(model, caller := Caller(what))
        assert isinstance(await caller.error(), BackendError)
        assert counts(model) == {"success": 0, "failure": 1, "backend": 1, "inferences": 0, "executions": 1}
        assert model.statistics.batches[1].compute_infer.count == 1

    play(tmp_path, test, ANSWERS)


def test_a_batch_that_raises_is_one_execution(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, *(callers := [Caller(0), Caller(9), Caller(1)]))
        for caller in callers:
            assert "RuntimeError: nine" in str(await caller.error())
        assert counts(model) == {"success": 0, "failure": 3, "backend": 3, "inferences": 0, "executions": 1}
        submit(model, *(callers := [Caller(0), Caller(1), Caller(0)]))
        await asyncio.gather(*(caller.done.wait() for caller in callers))
        assert counts(model) == {"success": 3, "failure": 3, "backend": 3, "inferences": 3, "executions": 2}
        assert model.statistics.batches[3].compute_infer.count == 2

    play(tmp_path, test, ANSWERS, BATCHING)


def test_a_batch_whose_process_dies_is_no_execution(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, caller := Caller(8))
        assert isinstance(await caller.error(), UnavailableError)
        found = counts(model)
        assert (found["success"], found["failure"], found["executions"]) == (0, 1, 0)

    play(tmp_path, test, ANSWERS)


def test_decoupled_answers(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        for what in (0, 1, 9):
            submit(model, caller := Caller(what))
            await asyncio.wait_for(caller.done.wait(), 10)
        assert counts(model) == {"success": 2, "failure": 1, "backend": 1, "inferences": 2, "executions": 3}

    play(tmp_path, test, SENDS, DECOUPLED)


def test_a_request_that_is_given_back_counts_once(tmp_path: Path) -> None:
    methods = """
    def initialize(self, args):
        self.runs = 0
    def execute(self, requests):
        self.runs += 1
        if self.runs < 3:
            for request in requests:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.zeros((1, 1), np.float32))]) for _ in requests]
    """

    async def test(model: Any) -> None:
        submit(model, caller := Caller(1))
        await caller.outputs()
        assert counts(model) == {"success": 1, "failure": 0, "backend": 0, "inferences": 1, "executions": 3}
        assert model.statistics.pending == 0

    play(tmp_path, test, methods)
