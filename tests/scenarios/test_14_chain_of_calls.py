"""Models that call one another: an error in the second of a chain names step, model and tensor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import wait_until
from support.python_models import TENSORS, Client, client_of, write_python_model

# Calls the model of the next step as its parameters say; hands an error on as it is.
FIRST = """
import json

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        said = json.loads(request.parameters() or "{}")
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy().astype(said.get("type", "float32"))
        x = x.reshape(json.loads(said.get("shape", "[1, 1]")))
        call = pb_utils.InferenceRequest(
            model_name=said.get("model", "second"), request_id="step 2", parameters={"do": said.get("do", "")},
            requested_output_names=[said.get("output", "Y")], inputs=[pb_utils.Tensor(said.get("input", "X"), x)])
        found = call.exec()
        if found.has_error():
            return pb_utils.InferenceResponse(error=found.error())
        return pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(found, "Y")])
"""
SECOND = """
import json

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        do = json.loads(request.parameters() or "{}").get("do", "")
        if do == "raise":
            raise ValueError("X must not be negative")
        if do == "error":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("X is no good"))
        if do == "die":
            os._exit(7)
        if do == "nothing":
            return pb_utils.InferenceResponse([])
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)])
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("chain")
    write_python_model(folder / "models", "first", FIRST)
    fixed = TENSORS.replace("-1", "1")
    write_python_model(folder / "models", "second", SECOND, tensors=fixed)
    with client_of(folder / "models", folder / "log") as found:
        yield found


@pytest.mark.parametrize(
    ("said", "named"),
    [
        # The server refuses the call before the second model sees it.
        ({"input": "Z"}, ["'second'", "'Z'"]),
        ({"output": "Z"}, ["'second'", "'Z'"]),
        ({"type": "int32"}, ["step 2", "'second'", "'X'", "INT32", "FP32"]),
        ({"shape": "[1, 1, 1]"}, ["step 2", "'second'", "'X'", "[-1,1]", "[1,1,1]"]),
        ({"model": "third"}, ["'third'"]),
        # The second model fails.
        ({"do": "raise"}, ["'second_0_0'", "ValueError: X must not be negative", "model.py", ": answer"]),
        ({"do": "error"}, ["X is no good"]),
        ({"do": "die"}, ["'second_0_0'", "exit code 7"]),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else "",
)
def test_an_error_in_the_second_step(client: Client, said: dict[str, str], named: list[str]) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.infer("first", 1, parameters=said)
    for name in named:
        assert name in str(caught.value)
    wait_until(client.grpc.is_server_ready, 15, "all models are ready")
    assert client.infer("first", 1)[0, 0] == 2


def test_a_second_step_without_output(client: Client) -> None:
    """It has answered, so the error is of the first model, whose line is named."""
    with pytest.raises(InferenceServerException, match="'first_0_0'") as caught:
        client.infer("first", 1, parameters={"do": "nothing"})
    assert "first/1/model.py(" in str(caught.value)
