"""Models whose ``execute`` is a coroutine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from naiad.worker.ipc import frames as p
from support.worker_peer import Request, worker_of, write_model

FAILED = "Failed to process the request(s) for model 'm_0_0', message: "
FINAL = "flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
ONE = Request({"IN": np.array([1], np.int32)})


def async_model(folder: Path, body: str, head: str = "async def execute(self, requests):") -> Path:
    lines = "".join(f"        {line}\n" for line in body.strip("\n").splitlines())
    return write_model(folder, f"import asyncio\nclass TritonPythonModel:\n    {head}\n{lines}")


def test_default_mode_waits_for_the_coroutine(tmp_path: Path) -> None:
    body = """
await asyncio.sleep(0.01)
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy() * 2)]) for r in requests]
"""
    with worker_of(async_model(tmp_path, body)) as child:
        for batch in (1, 2, 3):
            first, second = child.run([ONE, ONE], batch)
            assert first.outputs["OUT"].tolist() == second.outputs["OUT"].tolist() == [2]
        assert child.finish() == 0


def test_default_mode_runs_one_batch_after_the_other(tmp_path: Path) -> None:
    body = """
self.running = getattr(self, "running", 0) + 1
await asyncio.sleep(0.01)
self.running -= 1
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.running]))]) for r in requests]
"""
    with worker_of(async_model(tmp_path, body)) as child:
        for batch in (1, 2, 3):
            child.execute(batch, [ONE])
        for batch in (1, 2, 3):
            frame = child.expect(p.RESPONSES)
            assert frame.number == batch
            assert child.responses(frame)[0].outputs["OUT"].tolist() == [0]


def test_failures(tmp_path: Path) -> None:
    source = """
import asyncio
class TritonPythonModel:
    async def leave(self):
        sys.exit(2)
    async def execute(self, requests):
        kind = requests[0].request_id()
        await asyncio.sleep(0)
        if kind == "raise":
            raise RuntimeError("boom")
        if kind == "exit":
            sys.exit(1)
        if kind == "task":
            asyncio.get_running_loop().create_task(self.leave())
            await asyncio.sleep(0.05)
        if kind == "none":
            return None
        return [pb_utils.InferenceResponse([])]
    """
    model = write_model(tmp_path, source)
    with worker_of(model) as child:
        one = np.zeros(1)
        message = child.run_failing([Request({"IN": one}, id="raise")])
        assert message == f"{FAILED}RuntimeError: boom\n\nAt:\n  {model}(14): execute\n"
        assert child.run_failing([Request({"IN": one}, id="exit")]).startswith(f"{FAILED}SystemExit: 1\n")
        assert "found type '<class 'NoneType'>'" in child.run_failing([Request({"IN": one}, id="none")])
        assert child.run([Request({"IN": one}, id="task")])[0].error == ""
        assert child.run([ONE])[0].error == ""


def test_decoupled_batches_overlap(tmp_path: Path) -> None:
    body = f"""
for r in requests:
    s = r.get_response_sender()
    if r.request_id() == "first":
        self.second = asyncio.get_running_loop().create_future()
        await self.second
    else:
        self.second.set_result(None)
    s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]), {FINAL})
"""
    with worker_of(async_model(tmp_path, body), decoupled=True) as child:
        child.execute(1, [Request({"IN": np.array([1])}, id="first")], first=1)
        assert child.expect(p.DONE).json == {}
        child.execute(2, [Request({"IN": np.array([2])}, id="second")], first=2)
        responses, _ = child.collect(2, 2)
        assert {r.request: r.outputs["OUT"].tolist() for r in responses} == {1: [1], 2: [2]}


def test_a_decoupled_coroutine_that_fails_later(tmp_path: Path) -> None:
    body = f"""
requests[0].get_response_sender().send({FINAL})
await asyncio.sleep(0.01)
raise RuntimeError("late")
"""
    model = async_model(tmp_path, body)
    with worker_of(model, decoupled=True) as child:
        responses, done = child.run_decoupled([ONE, ONE])
        assert done == {}
        errors = {r.request: r.error for r in responses}
        assert errors == {1: "", 2: f"{FAILED}RuntimeError: late\n\nAt:\n  {model}(10): execute\n"}


def test_a_plain_function_may_return_a_coroutine(tmp_path: Path) -> None:
    source = """
    import asyncio
    class TritonPythonModel:
        def execute(self, requests):
            return self.work(requests)
        async def work(self, requests):
            await asyncio.sleep(0.01)
            if requests[0].request_id():
                raise RuntimeError("boom")
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
    """
    with worker_of(write_model(tmp_path, source)) as child:
        assert child.run([ONE])[0].outputs["OUT"].tolist() == [1]
        assert "RuntimeError: boom" in child.run_failing([Request({"IN": np.zeros(1)}, id="x")])
        assert child.finish() == 0


def test_a_plain_function_may_return_a_coroutine_in_decoupled_mode(tmp_path: Path) -> None:
    source = f"""
    import asyncio
    class TritonPythonModel:
        def execute(self, requests):
            return self.work(requests)
        async def work(self, requests):
            await asyncio.sleep(0.01)
            if requests[0].request_id():
                raise RuntimeError("boom")
            requests[0].get_response_sender().send({FINAL})
    """
    with worker_of(write_model(tmp_path, source), decoupled=True) as child:
        child.execute(1, [ONE])
        assert child.expect(p.DONE).json == {}
        assert child.responses(child.expect(p.RESPONSE))[0].final
        responses, _ = child.run_decoupled([Request({"IN": np.zeros(1)}, id="x")], batch=2)
        assert "RuntimeError: boom" in responses[0].error


def test_pings_and_cancels_while_the_loop_is_free_or_blocked(tmp_path: Path) -> None:
    body = f"""
r = requests[0]
if r.request_id() == "free":
    while not r.is_cancelled():
        await asyncio.sleep(0.001)
else:
    while not r.is_cancelled():
        time.sleep(0.001)
r.get_response_sender().send({FINAL})
"""
    with worker_of(async_model(tmp_path, body), decoupled=True) as child:
        for number, kind in ((1, "free"), (2, "blocked")):
            child.execute(number, [Request({"IN": np.zeros(1)}, id=kind)], first=number)
            assert child.expect(p.DONE).json == {}
            child.send(p.PING, 10 + number)
            assert child.expect(p.PONG).number == 10 + number
            child.send(p.CANCEL, number)
            assert child.responses(child.expect(p.RESPONSE))[0].final


def test_tasks_that_are_left_are_cancelled_at_the_end(tmp_path: Path) -> None:
    body = """
async def work():
    try:
        await asyncio.sleep(3600)
    finally:
        print("cancelled")
self.task = asyncio.get_running_loop().create_task(work())
await asyncio.sleep(0)
return [pb_utils.InferenceResponse([])]
"""
    with worker_of(async_model(tmp_path, body)) as child:
        child.run([ONE])
        assert child.finish() == 0
        assert child.said() == "cancelled\n"


def test_the_end_of_the_connection_ends_the_process(tmp_path: Path) -> None:
    with worker_of(async_model(tmp_path, "await asyncio.sleep(3600)\n")) as child:
        child.execute(1, [ONE])
        child.connection.close()
        assert child.process.wait(20) == 1
