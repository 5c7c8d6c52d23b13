"""What was under way when its model was loaded anew: bodies that have half arrived, streams, calls of other models."""

from __future__ import annotations

import json
import os
import queue
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from naiad.testing import read_response, request_bytes, wait_until
from support.python_models import DOUBLES, Client, client_of, write_python_model
from support.triton_inputs import input_of

# Sends as many responses as its input says, and the second one only when there is such a file.
WAITS = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            sender = request.get_response_sender()
            for n in range(int(x.flat[0])):
                if n == 1:
                    while not os.path.exists("{go_on}"):
                        time.sleep(0.01)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([n], np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
# Adds up what the decoupled model answers.
CALLS = """
class TritonPythonModel:
    def execute(self, requests):
        found = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy().reshape(-1)
            call = pb_utils.InferenceRequest(
                model_name="waits", requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)]
            )
            total = 0.0
            for response in call.exec(decoupled=True):
                if response.has_error():
                    raise pb_utils.TritonModelException(response.error().message())
                for tensor in response.output_tensors():
                    total += float(tensor.as_numpy()[0])
            found.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([[total]], np.float32))]))
        return found
"""
ARGUMENTS = ("--model-control-mode=explicit", "--load-model=*")


def load_anew(client: Client, repository: Path, name: str) -> None:
    os.utime(repository / name / "1" / "model.py")
    client.grpc.load_model(name)


def given(*values: float) -> Any:
    return input_of(tritonclient.grpc, "X", np.array(values, np.float32))


@pytest.mark.slow
def test_streams_and_calls_of_the_earlier_copy_go_on(tmp_path: Path) -> None:
    repository, go_on = tmp_path / "models", tmp_path / "go_on"
    decoupled = "model_transaction_policy { decoupled: true }"
    write_python_model(repository, "waits", WAITS.format(go_on=go_on), more=decoupled, count=2)
    write_python_model(repository, "calls", CALLS)
    with client_of(repository, tmp_path / "log", *ARGUMENTS) as client:
        answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.grpc.start_stream(lambda result, error: answers.put((result, error)))
        called: queue.Queue[tuple[Any, Any]] = queue.Queue()
        one = tritonclient.grpc.InferInput("X", [1, 1], "FP32")
        one.set_data_from_numpy(np.array([[3]], np.float32))
        client.grpc.async_infer("calls", [one], lambda result, error: called.put((result, error)))
        client.grpc.async_stream_infer("waits", [given(3)])
        first, error = answers.get(timeout=20)
        assert error is None
        assert first.as_numpy("Y").tolist() == [0]
        client.server.wait_pending("waits", 0)
        load_anew(client, repository, "waits")
        load_anew(client, repository, "calls")
        assert client.server.get("/v2/health/ready").status == 200
        # The open stream has the new copy for what it asks from now on, and the rest of the earlier one.
        client.grpc.async_stream_infer("waits", [given(1)])
        result, error = answers.get(timeout=20)
        assert error is None
        assert result.as_numpy("Y").tolist() == [0]
        assert answers.empty()
        go_on.touch()
        rest = [answers.get(timeout=20) for _ in range(2)]
        assert [error for _, error in rest] == [None, None]
        assert [result.as_numpy("Y").tolist() for result, _ in rest] == [[1], [2]]
        result, error = called.get(timeout=20)
        assert error is None
        assert result.as_numpy("Y").tolist() == [[3]]
        client.grpc.stop_stream()
        wait_until(lambda: len(client.children()) == 3, 20, "the earlier processes have ended")


@pytest.mark.slow
def test_a_body_that_arrives_during_a_reload_is_answered_by_the_new_copy(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    write_python_model(repository, "doubles", DOUBLES)
    elements = 1 << 20
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "X",
                    "shape": [1, elements],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": 4 * elements},
                }
            ],
            "outputs": [{"name": "Y", "parameters": {"binary_data": True}}],
        }
    ).encode()
    body = head + np.ones(elements, np.float32).tobytes()
    lengths = (("Inference-Header-Content-Length", str(len(head))), ("Content-Length", str(len(body))))
    with client_of(repository, tmp_path / "log", *ARGUMENTS) as client:
        before = {child.pid for child in client.children()}
        with client.server.connect() as peer:
            peer.sendall(request_bytes("POST", "/v2/models/doubles/infer", None, lengths) + body[: 1 << 20])
            load_anew(client, repository, "doubles")
            wait_until(
                lambda: not before & {child.pid for child in client.children()}, 20, "the earlier process has ended"
            )
            peer.sendall(body[1 << 20 :])
            answer = read_response(peer, "POST")
        assert answer.status == 200
        assert np.frombuffer(answer.body[-4 * elements :], np.float32).tolist() == [2.0] * elements
