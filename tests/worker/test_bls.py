"""Calls of other models, with a test in the place of the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.worker.ipc import frames as p
from support.worker_peer import Child, Request, worker_of, write_execute, write_model

FINAL = "flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
CALL = """
def call(self, value, **more):
    return pb_utils.InferenceRequest(model_name="other", requested_output_names=["OUT"],
                                     inputs=[pb_utils.Tensor("IN", value)], **more)
"""


def model_with(folder: Path, execute: str, head: str = "def execute(self, requests):") -> Path:
    """A model with ``self.call(value)``, which makes a request."""
    indented = "".join(f"        {line}\n" for line in execute.strip("\n").splitlines())
    call = "".join(f"    {line}\n" for line in CALL.strip().splitlines())
    return write_model(folder, f"import asyncio\nclass TritonPythonModel:\n{call}    {head}\n{indented}")


def number(value: int) -> Request:
    return Request({"IN": np.array([value], np.int64)})


def test_a_call_and_its_response(tmp_path: Path) -> None:
    execute = """
r = self.call(np.array([[1, 2]], np.float32), request_id="ï", correlation_id="seq", flags=3, timeout=77,
              model_version=4, parameters={"k": True}, trace=requests[0].trace()).exec()
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.output_tensors()[0].as_numpy() + 1)])]
"""
    with worker_of(model_with(tmp_path, execute)) as child:
        child.execute(1, [Request({"IN": np.zeros(1)}, options={"trace": "ctx"})], first=9)
        frame = child.expect(p.CALL)
        head, form, inputs = child.read_call(frame)
        assert head == {
            "model": "other", "version": 4, "id": "ï", "decoupled": False, "timeout_us": 77, "parent": 9,
        }  # fmt: skip
        described = form.pop("inputs")
        assert described == [["IN", "FP32", [1, 2]]]
        assert form == {
            "outputs": ["OUT"], "parameters": {"k": True}, "timeout_us": 77, "flags": 3, "correlation_id": "seq",
            "trace": "ctx", "decoupled": False,
        }  # fmt: skip
        assert inputs["IN"].tolist() == [[1, 2]]
        child.answer_call(frame.number, {"OUT": np.array([5, 6])})
        (response,) = child.responses(child.expect(p.RESPONSES))
        assert response.outputs["OUT"].tolist() == [6, 7]


def test_errors_are_responses(tmp_path: Path) -> None:
    execute = """
r = self.call(np.zeros(1)).exec()
seen = [r.has_error(), r.error().message(), int(r.error().code()), len(r.output_tensors())]
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(seen)], dtype=object))])]
"""
    with worker_of(model_with(tmp_path, execute)) as child:
        child.execute(1, [number(0)])
        child.answer_call(child.expect(p.CALL).number, error="no such model")
        (response,) = child.responses(child.expect(p.RESPONSES))
        assert json.loads(response.outputs["OUT"][0]) == [True, "no such model", 2, 0]
        child.execute(2, [number(0)])
        child.answer_call(child.expect(p.CALL).number)
        (response,) = child.responses(child.expect(p.RESPONSES))
        assert json.loads(response.outputs["OUT"][0])[1] == "Unexpected empty response."


def test_many_asynchronous_calls_are_under_way_at_once(tmp_path: Path) -> None:
    execute = """
calls = [self.call(np.array([i])).async_exec() for i in range(100)]
responses = await asyncio.gather(*calls)
values = [int(pb_utils.get_output_tensor_by_name(r, "OUT").as_numpy()[0]) for r in responses]
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(values))])]
"""
    with worker_of(model_with(tmp_path, execute, "async def execute(self, requests):")) as child:
        answer_hundred(child)


def test_asynchronous_calls_in_a_loop_of_the_model(tmp_path: Path) -> None:
    execute = """
async def work():
    return await asyncio.gather(*[self.call(np.array([i])).async_exec() for i in range(100)])
values = [int(r.output_tensors()[0].as_numpy()[0]) for r in asyncio.run(work())]
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(values))])]
"""
    with worker_of(model_with(tmp_path, execute)) as child:
        answer_hundred(child)


@pytest.mark.slow
def test_calls_from_many_threads(tmp_path: Path) -> None:
    execute = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(100) as pool:
    responses = list(pool.map(lambda i: self.call(np.array([i])).exec(), range(100)))
values = [int(r.output_tensors()[0].as_numpy()[0]) for r in responses]
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(values))])]
"""
    with worker_of(model_with(tmp_path, execute)) as child:
        answer_hundred(child)


def answer_hundred(child: Child) -> None:
    """Take a hundred calls in before answering the first, in another order, twice."""
    for batch in (1, 2):
        child.execute(batch, [number(0)])
        calls = [child.expect(p.CALL) for _ in range(100)]
        for frame in reversed(calls):
            child.answer_call(frame.number, {"OUT": child.read_call(frame)[2]["IN"] * 2})
        (response,) = child.responses(child.expect(p.RESPONSES))
        assert response.outputs["OUT"].tolist() == [2 * i for i in range(100)]


ITERATE = """
values = []
for r in ITERATOR:
    values += [int(t.as_numpy()[0]) for t in r.output_tensors()] if r.output_tensors() else [-1]
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(values))])]
"""


@pytest.mark.parametrize(
    ("head", "iterator"),
    [
        ("def execute(self, requests):", "self.call(np.zeros(1)).exec(decoupled=True)"),
        ("async def execute(self, requests):", "await self.call(np.zeros(1)).async_exec(decoupled=True)"),
        ("async def execute(self, requests):", "self.call(np.zeros(1)).exec(decoupled=True)"),
    ],
)
def test_a_decoupled_call(tmp_path: Path, head: str, iterator: str) -> None:
    with worker_of(model_with(tmp_path, ITERATE.replace("ITERATOR", iterator), head)) as child:
        answer_decoupled(child)


def test_a_decoupled_call_with_async_for(tmp_path: Path) -> None:
    execute = ITERATE.replace(
        "for r in ITERATOR", "async for r in await self.call(np.zeros(1)).async_exec(decoupled=True)"
    )
    with worker_of(model_with(tmp_path, execute, "async def execute(self, requests):")) as child:
        answer_decoupled(child)


def answer_decoupled(child: Child) -> None:
    child.execute(1, [number(0)])
    frame = child.expect(p.CALL)
    assert child.read_call(frame)[0]["decoupled"] is True
    for value in range(3):
        child.answer_call(frame.number, {"OUT": np.array([value])}, flags=0)
    child.answer_call(frame.number)
    (response,) = child.responses(child.expect(p.RESPONSES))
    # A mere end is an empty response, which models of the reference count.
    assert response.outputs["OUT"].tolist() == [0, 1, 2, -1]


def test_an_iterator_can_be_read_again_and_cancelled(tmp_path: Path) -> None:
    execute = """
responses = self.call(np.zeros(1)).exec(decoupled=True)
first = next(responses)
responses.cancel()
rest = [int(r.output_tensors()[0].as_numpy()[0]) for r in responses]
responses.cancel()
again = [int(r.output_tensors()[0].as_numpy()[0]) for r in responses]
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(rest + again))])]
"""
    with worker_of(model_with(tmp_path, execute)) as child:
        child.execute(1, [number(0)])
        frame = child.expect(p.CALL)
        child.answer_call(frame.number, {"OUT": np.array([1])}, flags=0)
        assert child.expect(p.CANCEL_CALL).number == frame.number
        child.answer_call(frame.number, {"OUT": np.array([2])})
        (response,) = child.responses(child.expect(p.RESPONSES))
        assert response.outputs["OUT"].tolist() == [2, 1, 2]


def test_cancelling_what_is_awaited_cancels_the_call(tmp_path: Path) -> None:
    execute = """
try:
    await asyncio.wait_for(self.call(np.zeros(1)).async_exec(), 0.05)
except asyncio.TimeoutError:
    return [pb_utils.InferenceResponse(error=pb_utils.TritonError("too slow"))]
"""
    with worker_of(model_with(tmp_path, execute, "async def execute(self, requests):")) as child:
        child.execute(1, [number(0)])
        frame = child.expect(p.CALL)
        assert child.expect(p.CANCEL_CALL).number == frame.number
        assert child.responses(child.expect(p.RESPONSES))[0].error == "too slow"
        child.answer_call(frame.number, {"OUT": np.zeros(1)})
        child.send(p.PING, 1)
        child.expect(p.PONG)


def test_large_tensors_of_calls_travel_in_segments(tmp_path: Path) -> None:
    execute = """
r = self.call(np.arange(50000)).exec()
total = int(r.output_tensors()[0].as_numpy().sum())
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([total]))])]
"""
    with worker_of(model_with(tmp_path, execute)) as child:
        child.execute(1, [number(0)])
        frame = child.expect(p.CALL)
        array = child.read_call(frame)[2]["IN"]
        assert array.tolist() == list(range(50000))
        child.send(p.RELEASE, 0, p.NUMBERS.pack(1))
        segment = child.add_segment(7, array.nbytes)
        segment[:] = array.tobytes()
        form = child.form({"outputs": [["OUT", "INT64", [50000]]], "parameters": {}})
        head = p.RESPONSE_HEAD.pack(0, form, p.FLAG_FINAL, 0, 0) + p.PLACE.pack(7, 0, 0, array.nbytes)
        child.send(p.CALL_RESPONSE, frame.number, head)
        (response,) = child.responses(child.expect(p.RESPONSES))
        assert response.outputs["OUT"].tolist() == [sum(range(50000))]
        assert child.released == [7]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["initialize", "finalize"])
def test_calls_are_for_execute(tmp_path: Path, where: str) -> None:
    source = f"""
    class TritonPythonModel:
        def {where}(self, *args):
            pb_utils.InferenceRequest(model_name="o", requested_output_names=["O"], inputs=[]).exec()
        def execute(self, requests):
            return []
    """
    with worker_of(write_model(tmp_path, "class TritonPythonModel: pass")) as other:
        assert other.finish() == 0
    child = Child()
    try:
        answer = child.start(write_model(tmp_path, source))
        text = answer.json["message"] if where == "initialize" else finished_log(child)
        assert "TritonModelException: BLS is only supported during the 'execute' function." in text
    finally:
        child.close()


def finished_log(child: Child) -> Any:
    child.send(p.FINALIZE)
    return child.expect(p.LOG).json["message"]


def test_a_received_request_is_not_executed(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, "return [requests[0].exec()]")) as child:
        assert "make a new InferenceRequest" in child.run_failing([number(0)])


@pytest.mark.slow
def test_other_batches_arrive_while_a_call_is_waited_for(tmp_path: Path) -> None:
    execute = f"""
for r in requests:
    value = self.call(r.inputs()[0].as_numpy()).exec().output_tensors()[0].as_numpy()
    r.get_response_sender().send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]), {FINAL})
"""
    for head in ("def execute(self, requests):", "async def execute(self, requests):"):
        with worker_of(model_with(tmp_path, execute, head), decoupled=True) as child:
            child.execute(1, [number(1)], first=1)
            child.execute(2, [number(2)], first=2)
            results = {}
            while len(results) < 2:
                frame = child.expect(p.CALL, p.DONE)
                child.answer_call(frame.number, {"OUT": child.read_call(frame)[2]["IN"]})
                (response,) = child.responses(child.expect(p.RESPONSE, p.DONE))
                results[response.request] = response.outputs["OUT"].tolist()
            assert results == {1: [1], 2: [2]}
