"""Requests of one batch with other outputs and other parameters: each gets its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from naiad.testing import RunningServer, serving
from support.served_models import SUM_AND_DIFFERENCE, tensor, write_model

CALLERS = 6
BATCHING = f"""max_batch_size: 8 instance_group [ {{ kind: KIND_CPU count: 1 }} ]
dynamic_batching {{ preferred_batch_size: [ {CALLERS} ] max_queue_delay_microseconds: 3000000 }}
"""
SIMPLE = f"""platform: "onnxruntime_onnx" {BATCHING}
input [ {tensor("INPUT0", "TYPE_INT32", "16")}, {tensor("INPUT1", "TYPE_INT32", "16")} ]
output [ {tensor("OUTPUT0", "TYPE_INT32", "16")}, {tensor("OUTPUT1", "TYPE_INT32", "16")} ]
"""
PARAMETERS = f"""backend: "python" {BATCHING}
input [ {tensor("INPUT0", "TYPE_INT32", "16")}, {tensor("INPUT1", "TYPE_INT32", "16")} ]
output [ {tensor("OUTPUT0", "TYPE_INT32", "1")}, {tensor("OUTPUT1", "TYPE_INT32", "1")} ]
"""
TIMES = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            times = json.loads(request.parameters()).get("times", 0)
            tensors = [
                pb_utils.Tensor(name, np.array([[value]], np.int32))
                for name, value in (("OUTPUT0", times), ("OUTPUT1", len(requests)))
                if name in request.requested_output_names()
            ]
            answers.append(pb_utils.InferenceResponse(tensors))
        return answers
"""
WANTED = [["OUTPUT0"], ["OUTPUT1"], ["OUTPUT0", "OUTPUT1"], ["OUTPUT1", "OUTPUT0"], [], ["OUTPUT0"]]


def ask(server: RunningServer, model: str, at: int) -> dict[str, Any]:
    inputs = [{"name": f"INPUT{i}", "datatype": "INT32", "shape": [1, 16], "data": [at + 1] * 16} for i in range(2)]
    body: dict[str, Any] = {"inputs": inputs, "parameters": {"times": at}}
    if WANTED[at]:
        body["outputs"] = [{"name": name} for name in WANTED[at]]
    answer = server.infer(model, body)
    assert answer.status == 200, answer.body
    return {output["name"]: output["data"][0] for output in answer.json()["outputs"]}


def test_each_gets_what_it_asked_for(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "simple", SIMPLE, graph=SUM_AND_DIFFERENCE)
    folder = write_model(tmp_path / "models", "times", PARAMETERS)
    (folder / "1" / "model.py").write_text(TIMES)
    with serving(tmp_path / "log", tmp_path / "models") as server, ThreadPoolExecutor(CALLERS) as pool:
        for model in ("simple", "times"):
            answers = list(pool.map(lambda at, model=model: ask(server, model, at), range(CALLERS)))
            assert server.statistics(model)["execution_count"] == 1, "they ran together"
            for at, found in enumerate(answers):
                own = (
                    {"OUTPUT0": 2 * (at + 1), "OUTPUT1": 0}
                    if model == "simple"
                    else {"OUTPUT0": at, "OUTPUT1": CALLERS}
                )
                assert found == {name: own[name] for name in WANTED[at] or own}
