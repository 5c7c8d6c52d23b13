"""Python models that call other models (BLS) and that say themselves whether they are ready, in a real server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.execution.worker.readiness import LIMIT_S, WorkerReadiness
from naiad.testing import wait_until
from naiad.worker.ipc.frames import FRAME
from support.python_models import DOUBLES, MISBEHAVES, REPEATS, Client, client_of, write_python_model

READY_S = 15.0

# What it calls is told by the parameters of its request.
CALLS = """
import json

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        said = json.loads(request.parameters())
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if "ready" in said:
            ready = pb_utils.is_model_ready(said["ready"], said.get("version", ""))
            return self.response(np.full_like(x, ready))
        if "touch" in said:
            open(said["touch"], "w").close()
            time.sleep(0.5)
        if "load" in said:
            pb_utils.load_model(said["load"])
        call = pb_utils.InferenceRequest(
            model_name=said["model"], model_version=int(said.get("version", "-1")), request_id="seven",
            requested_output_names=[said.get("output", "Y")],
            inputs=[pb_utils.Tensor(said.get("input", "X"), x.astype(said.get("type", "float32")))])
        if not said.get("decoupled"):
            return self.passed_on(call.exec())
        responses = call.exec(decoupled=True)
        if said.get("die"):
            os._exit(3)
        if said.get("stop"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if said.get("cancel"):
            responses.cancel()
        found = []
        for response in responses:
            if response.has_error():
                return self.passed_on(response)
            found += [t.as_numpy().flat[0] for t in response.output_tensors()]
        return self.response(np.array([found], np.float32))

    def passed_on(self, response):
        if response.has_error():
            error = response.error()
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(error.message(), error.code()))
        return self.response(pb_utils.get_output_tensor_by_name(response, "Y").as_numpy())

    def response(self, y):
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
"""
CALLS_OFTEN = """
import asyncio

class TritonPythonModel:
    async def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            calls = [self.call(np.full((1, 1), n, np.float32)) for n in range(int(x.flat[0]))]
            responses = await asyncio.gather(*calls)
            found = [pb_utils.get_output_tensor_by_name(r, "Y").as_numpy()[0, 0] for r in responses]
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([found], np.float32))]))
        return answers

    def call(self, x):
        return pb_utils.InferenceRequest(
            model_name="slow", requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)]).async_exec()
"""
CALLS_TEXTS = """
import json

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name=json.loads(request.parameters())["model"], requested_output_names=["Y"],
                inputs=[pb_utils.get_input_tensor_by_name(request, "X")], parameters={"n": 3, "on": True, "t": "x"})
            got = call.exec()
            answers.append(pb_utils.InferenceResponse(got.output_tensors(), parameters={"seen": got.parameters()}))
        return answers
"""
ECHOES = """
import json

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        y = pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())
        other = pb_utils.Tensor("OTHER", np.zeros(1, np.float32))
        return pb_utils.InferenceResponse([other, y], parameters=json.loads(request.parameters()))
"""
TEXTS = """
input [ { name: "X" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_STRING dims: [ -1 ] } ]
"""
SLOW = DOUBLES.replace("answers = []", "answers = []; time.sleep(0.2)")
# Runs until its caller gives up, if its input is not 0.
WAITS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            end = time.monotonic() + 60 * (x.flat[0] != 0)
            while time.monotonic() < end and not request.is_cancelled():
                time.sleep(0.01)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return answers
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of one server with all models."""
    folder = tmp_path_factory.mktemp("bls")
    models = folder / "models"
    write_python_model(models, "calls", CALLS, count=2)
    write_python_model(models, "calls_often", CALLS_OFTEN)
    write_python_model(models, "doubles", DOUBLES)
    write_python_model(models, "calls_texts", CALLS_TEXTS, tensors=TEXTS)
    write_python_model(models, "echoes", ECHOES, tensors=TEXTS)
    (models / "same" / "1").mkdir(parents=True)
    (models / "same" / "config.pbtxt").write_text(f'backend: "identity" max_batch_size: 8 {TEXTS}')
    write_python_model(models, "slow", SLOW, "max_batch_size: 128 dynamic_batching { }")
    write_python_model(models, "misbehaves", MISBEHAVES)
    write_python_model(models, "repeats", REPEATS, "max_batch_size: 8 model_transaction_policy { decoupled: true }")
    write_python_model(models, "waits", WAITS)
    with client_of(models, folder / "log") as found:
        yield found


def ask(client: Client, *values: float, **said: Any) -> Any:
    """What the calling model makes of a request with these parameters."""
    return client.infer("calls", *values, parameters=said, client_timeout=20.0).tolist()


@pytest.mark.slow
def test_a_model_calls_another_with_small_and_large_tensors(client: Client) -> None:
    for size in (1, 5_000, 8_192, 150_000, 2_500_000):
        x = np.random.default_rng(size).random((1, size), np.float32)
        for _ in range(3):
            assert np.array_equal(client.infer_array("calls", x, parameters={"model": "doubles"}), 2 * x)
    assert ask(client, 4, model="doubles", version="1") == [[8]]


def test_a_call_of_the_model_itself_goes_to_its_other_instance(client: Client) -> None:
    # The inner request has no parameters.
    with pytest.raises(InferenceServerException, match="KeyError: 'model'"):
        ask(client, 1, model="calls")


@pytest.mark.slow
def test_calls_of_very_many_shapes(client: Client) -> None:
    """Both sides forget forms when there are many of them."""
    for size in range(1, 1200):
        x = np.full((1, size), size, np.float32)
        assert np.array_equal(client.infer_array("calls", x, parameters={"model": "doubles"}), 2 * x)


def test_texts_and_parameters_go_both_ways_and_any_backend_can_be_called(client: Client) -> None:
    given = tritonclient.grpc.InferInput("X", [2, 2], "BYTES")
    given.set_data_from_numpy(np.array([[b"", "ä".encode()], [b"\xff\x00", b"x" * 40_000]], np.object_))
    for name, parameters in (("echoes", '{"n":3,"on":true,"t":"x"}'), ("same", "{}")):
        found = client.grpc.infer("calls_texts", [given], parameters={"model": name})
        expected = [["ä".encode(), b""], [b"x" * 40_000, b"\xff\x00"]]
        assert [row[::-1] for row in found.as_numpy("Y").tolist()] == expected
        assert found.get_response().parameters["seen"].string_param == parameters


def test_many_calls_are_under_way_at_once(client: Client) -> None:
    begun = monotonic()
    assert client.infer("calls_often", 100).tolist() == [[2 * n for n in range(100)]]
    # One after the other they would take 20 s.
    assert monotonic() - begun < 10.0
    (found,) = client.grpc.get_inference_statistics("slow").model_stats
    assert found.inference_count == 100
    assert found.execution_count < 20


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        ({"model": "nobody"}, "NOT_FOUND", "Model nobody - Error when running inference: Request for unknown"),
        ({"model": "doubles", "version": "7"}, "NOT_FOUND", "'doubles' version 7 is not found"),
        ({"model": "doubles", "version": "-5"}, "INVALID_ARGUMENT", "invalid model version specified '-5'"),
        ({"model": "doubles", "input": "Z"}, "INVALID_ARGUMENT", "unexpected inference input 'Z' for model 'doubles'"),
        ({"model": "doubles", "output": "Z"}, "INVALID_ARGUMENT", "unexpected inference output 'Z'"),
        (
            {"model": "doubles", "type": "int32"},
            "INVALID_ARGUMENT",
            "[request id: seven] inference input 'X' data-type is 'INT32', but model 'doubles' expects 'FP32'",
        ),
        ({"model": "repeats"}, "UNIMPLEMENTED", "Please use 'decoupled=True' argument to the 'exec'"),
        ({"model": "misbehaves"}, "UNAVAILABLE", "Stub process 'misbehaves_0_0' is not healthy."),
        ({"load": "doubles"}, "INTERNAL", "Failed to load model: explicit model load / unload is not allowed"),
    ],
)
def test_what_goes_wrong_is_the_response(client: Client, said: dict[str, Any], code: str, text: str) -> None:
    wait_until(lambda: client.grpc.is_model_ready("misbehaves"), READY_S, "the target is ready")
    with pytest.raises(InferenceServerException) as caught:
        ask(client, 2, **said)
    assert code in str(caught.value.status())
    assert text in str(caught.value)
    assert ask(client, 2, model="doubles") == [[4]]


def test_decoupled_calls(client: Client) -> None:
    assert ask(client, 3, model="doubles", decoupled=True) == [[6]]
    assert ask(client, 4, model="repeats", decoupled=True) == [[0, 1, 2, 3]]
    assert ask(client, 0, model="repeats", decoupled=True) == [[]]
    with pytest.raises(InferenceServerException, match="'nobody' is not found"):
        ask(client, 3, model="nobody", decoupled=True)


def test_a_call_can_be_given_up(client: Client) -> None:
    assert ask(client, 1, model="waits", decoupled=True, cancel=True) == [[1]]


def test_the_calls_of_a_process_that_dies_are_given_up(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="exit code 3"):
        ask(client, 1, model="waits", decoupled=True, die=True)
    assert client.infer("waits", 0, client_timeout=10.0).tolist() == [[0]]
    wait_until(lambda: client.grpc.is_model_ready("calls"), READY_S, "the calling model is back")
    assert ask(client, 2, model="doubles") == [[4]]


@pytest.mark.slow
def test_a_model_that_does_not_take_its_responses_is_cut_off(client: Client) -> None:
    def answered() -> int:
        (found,) = client.grpc.get_inference_statistics("repeats").model_stats
        return int(found.inference_stats.success.count)

    def stopped() -> list[psutil.Process]:
        return [p for p in client.children() if p.status() == psutil.STATUS_STOPPED]

    before = answered()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, client, 5_000, model="repeats", decoupled=True, stop=True)
        try:
            wait_until(lambda: answered() > before, 10.0, "all responses are there")
        finally:
            for process in stopped():
                process.resume()
        with pytest.raises(InferenceServerException, match="the responses come faster than the calling model takes"):
            asked.result()
    assert ask(client, 3, model="repeats", decoupled=True) == [[0, 1, 2]]


def test_models_ask_for_the_readiness_of_others(client: Client) -> None:
    assert ask(client, 9, ready="doubles") == [[1]]
    assert ask(client, 9, ready="doubles", version="1") == [[1]]
    assert ask(client, 9, ready="doubles", version="2") == [[0]]
    assert ask(client, 9, ready="nobody") == [[0]]
    with pytest.raises(InferenceServerException, match=r"Failed to check model readiness: .*'one'"):
        ask(client, 9, ready="doubles", version="one")


@pytest.mark.slow
def test_is_ready_of_a_model_decides_about_its_readiness(tmp_path: Path) -> None:
    flag = tmp_path / "ready"
    source = f"{DOUBLES}\n    def is_ready(self):\n        return os.path.exists({str(flag)!r})\n"
    write_python_model(tmp_path / "models", "picky", source)
    write_python_model(tmp_path / "models", "doubles", DOUBLES)
    write_python_model(tmp_path / "models", "willing", f"{DOUBLES}\n    def is_ready(self):\n        return True\n")
    with client_of(tmp_path / "models", tmp_path / "log") as client:
        # Known from the end of the load on.
        assert not client.grpc.is_model_ready("picky")
        assert not client.grpc.is_server_ready()
        assert client.grpc.is_model_ready("doubles")
        assert client.grpc.is_model_ready("willing")
        assert client.infer("picky", 1).tolist() == [[2]]
        flag.touch()
        wait_until(client.grpc.is_server_ready, READY_S, "the model is ready")
        flag.unlink()
        wait_until(lambda: not client.grpc.is_model_ready("picky"), READY_S, "the model is not ready again")
    assert "picky_0_0 is not ready: is_ready() said no" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_an_accepted_request_may_call_while_the_server_ends(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "calls", CALLS)
    write_python_model(tmp_path / "models", "doubles", DOUBLES)
    with client_of(tmp_path / "models", tmp_path / "log") as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, client, 3, model="doubles", touch=str(tmp_path / "begun"))
        wait_until((tmp_path / "begun").exists, READY_S, "the request runs")
        client.server.signal(signal.SIGTERM)
        assert asked.result() == [[6]]
        assert client.server.process.wait(10) == 0


def test_readiness_without_an_answer() -> None:
    readiness = WorkerReadiness("a_0_0", True)
    _, _, asked = FRAME.unpack(readiness.beat(9.0))
    readiness.take(asked, {"ready": True})
    assert readiness.beat(10.0)
    assert readiness.beat(10.0 + LIMIT_S)
    assert readiness.problem == ""
    _, _, asked = FRAME.unpack(readiness.beat(10.1 + LIMIT_S))
    assert readiness.problem == "Model 'a_0_0' is not ready (user-defined check failed)."
    readiness.take(asked, {"ready": True})
    assert readiness.problem == ""
    _, _, asked = FRAME.unpack(readiness.beat(10.2 + LIMIT_S))
    readiness.take(asked, {"error": "no luck"})
    assert readiness.problem
    assert WorkerReadiness("a_0_0", False).beat(1.0) == b""
