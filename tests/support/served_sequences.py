"""Models with sequences for tests of the whole server, and a client that sends them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http

from naiad.testing import RunningServer
from support.served_models import tensor, write_model

HEAD = """
import json, os, signal, time
import numpy as np
import triton_python_backend_utils as pb_utils

def number(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy().flat[0]
"""
# Adds up what each sequence gives it, by its id. A negative input ends the process.
TOTALS = (
    HEAD
    + """
class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        value, key = int(number(request, "INPUT")), number(request, "CORRID")
        if not number(request, "READY"):
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.zeros((1, 1), np.int32))])
        if value == -9:
            os.kill(os.getpid(), signal.SIGKILL)
        if value == -1:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("no negative numbers"))
        if value >= 1000:
            time.sleep(value / 1_000_000)
            value = 1
        total = (0 if number(request, "START") else self.totals[key]) + value
        self.totals[key] = total
        if number(request, "END"):
            del self.totals[key]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.full((1, 1), total, np.int32))])
"""
)
# The same, but what is added up travels as the state of the sequence.
STATES = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        total = np.full((1, 1), number(request, "INPUT") + number(request, "TOTAL"), np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", total), pb_utils.Tensor("TOTAL_OUT", total)])
"""
)
# Passes one step of a sequence on to the model "oldest".
CALLS = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        call = pb_utils.InferenceRequest(
            model_name="oldest", requested_output_names=["OUTPUT"], correlation_id=request.correlation_id(),
            flags=request.flags(), inputs=[pb_utils.get_input_tensor_by_name(request, "INPUT")])
        found = call.exec()
        if found.has_error():
            return pb_utils.InferenceResponse(error=found.error())
        return pb_utils.InferenceResponse(found.output_tensors())
"""
)
GRAPH = """<ir_version: 8, opset_import: ["": 17]>
totals (int32[N, 1] INPUT, int32[N, 1] TOTAL) => (int32[N, 1] OUTPUT, int32[N, 1] TOTAL_OUT) {
  OUTPUT = Add (INPUT, TOTAL)
  TOTAL_OUT = Identity (OUTPUT)
}"""
TENSORS = f"""input [ {tensor("INPUT", "TYPE_INT32", "1")} ] output [ {tensor("OUTPUT", "TYPE_INT32", "1")} ]"""
STATE = """state [ { input_name: "TOTAL" output_name: "TOTAL_OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]"""


def controls(correlation: str = "TYPE_UINT64") -> str:
    """Controls of every kind."""
    values = {"START": "int32_false_true: [ 0, 1 ]", "END": "fp32_false_true: [ 0, 1 ]"}
    values |= {"READY": "bool_false_true: [ false, true ]", "CORRID": f"data_type: {correlation}"}
    given = ", ".join(
        f'{{ name: "{kind}" control [ {{ kind: CONTROL_SEQUENCE_{kind} {value} }} ] }}'
        for kind, value in values.items()
    )
    return f"control_input [ {given} ]"


def write(
    repository: Path,
    name: str,
    section: str,
    source: str = TOTALS,
    backend: str = "python",
    count: int = 1,
    more: str = "",
    max_batch_size: int = 4,
    tensors: str = TENSORS,
) -> Path:
    """A model with the section ``sequence_batching``; its folder."""
    config = f"""backend: "{backend}" max_batch_size: {max_batch_size} {tensors} {more}
        instance_group [ {{ kind: KIND_CPU count: {count} }} ]
        {section and f"sequence_batching {{ {section} }}"}"""
    folder = write_model(repository, name, config, graph=source if backend == "onnxruntime" else "")
    if backend == "python":
        (folder / "1" / "model.py").write_text(source)
    return folder


def write_all(repository: Path) -> None:
    """One model of each kind."""
    write(repository, "direct", f"direct {{ }} {controls()}", count=2)
    write(repository, "oldest", f"oldest {{ max_candidate_sequences: 3 }} {controls()}", count=2)
    write(repository, "named", f"oldest {{ }} {controls('TYPE_STRING')}")
    write(repository, "python_states", f"direct {{ }} {STATE}", STATES)
    write(repository, "onnx_direct", f"direct {{ }} {STATE}", GRAPH, "onnxruntime")
    write(repository, "onnx_oldest", f"oldest {{ }} {STATE}", GRAPH, "onnxruntime", 2)
    hosted = 'parameters { key: "execution" value { string_value: "process" } }'
    write(repository, "onnx_process", f"oldest {{ }} {STATE}", GRAPH, "onnxruntime", 2, hosted)
    write(repository, "calls", "", CALLS)
    sample = """model_warmup [ { name: "one" batch_size: 2 inputs {
        key: "INPUT" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } } ]"""
    write(repository, "warm", f"direct {{ }} {STATE}", GRAPH, "onnxruntime", 2, sample)
    write(repository, "completed", f"oldest {{ }} {STATE}", GRAPH, "onnxruntime", tensors="")


class Client:
    """Sends steps over HTTP, gRPC, and a stream of gRPC."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self._own = threading.local()
        self._clients: list[Any] = []

    def step(
        self, way: str, model: str, sequence: int | str, value: int, start: bool = False, end: bool = False
    ) -> int:
        """One request over "http", "grpc" or "stream"; the total that it gets."""
        package = tritonclient.http if way == "http" else tritonclient.grpc
        given = package.InferInput("INPUT", [1, 1], "INT32")
        given.set_data_from_numpy(np.array([[value]], np.int32))
        options = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
        if way == "stream":
            answers, client = self._stream()
            client.async_stream_infer(model, [given], **options)
            result, error = answers.get(timeout=20)
            if error is not None:
                raise error
        else:
            result = self._client(package).infer(model, [given], **options)
        return int(result.as_numpy("OUTPUT")[0, 0])

    def run(self, way: str, model: str, sequence: int | str, values: Sequence[int]) -> list[int]:
        """A whole sequence."""
        last = len(values) - 1
        return [self.step(way, model, sequence, v, i == 0, i == last) for i, v in enumerate(values)]

    def _client(self, package: Any) -> Any:
        made = vars(self._own).setdefault("clients", {})
        if package not in made:
            url = self.server.url if package is tritonclient.http else self.server.grpc_url
            made[package] = package.InferenceServerClient(url)
            self._clients.append(made[package])
        return made[package]

    def _stream(self) -> tuple[SimpleQueue[Any], Any]:
        if not hasattr(self._own, "answers"):
            self._own.answers = SimpleQueue()
            self._own.stream = tritonclient.grpc.InferenceServerClient(self.server.grpc_url)
            self._own.stream.start_stream(lambda result, error: self._own_put(answers, result, error))
            answers = self._own.answers
            self._clients.append(self._own.stream)
        return self._own.answers, self._own.stream

    @staticmethod
    def _own_put(answers: SimpleQueue[Any], result: Any, error: Any) -> None:
        answers.put((result, error))

    def close(self) -> None:
        """End all connections."""
        for client in self._clients:
            client.close()


def as_json(value: int, sequence: int | str, start: bool = False, end: bool = False) -> bytes:
    """A step as the body of an HTTP request."""
    given = {"name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [value]}
    options = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
    return json.dumps({"inputs": [given], "parameters": options}).encode()
