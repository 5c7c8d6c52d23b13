"""An error inside an ensemble says where it was, with the status of the model that failed; graphs that cannot run are
refused when they load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, serving
from server.test_ensembles import write_python
from support.served_ensembles import chain, step, write_ensemble, write_identity
from support.served_models import numbers, tensor

REFUSES = """
class TritonPythonModel:
    def execute(self, requests):
        error = pb_utils.TritonError("no such word", pb_utils.TritonError.NOT_FOUND)
        return [pb_utils.InferenceResponse([], error=error) for _ in requests]
"""
RAISES = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("a step that stumbles")
"""
ROW = [1, 2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("ensemble_errors")
    models = folder / "models"
    one = tensor("INPUT0", "TYPE_INT32", "-1")
    write_identity(models, "same")

    write_python(models, "refuses", REFUSES, one)
    write_python(models, "raises", RAISES, one)
    write_python(models, "narrow", RAISES, tensor("INPUT0", "TYPE_INT32", "4"))
    for name in ("refuses", "raises", "narrow"):
        write_ensemble(models, f"to_{name}", *chain("same", name, "same"))
    write_ensemble(models, "outer", step("to_raises", {"IN": "IN"}, {"OUT": "OUT"}))
    write_ensemble(models, "impossible", step("same", {"INPUT0": "IN"}, {"NOWHERE": "OUT"}))
    with serving(folder / "log", "--model-repository", models, "--exit-on-error=false") as found:
        yield found


def request() -> dict[str, Any]:
    return {"id": "7", "inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 2], "data": ROW}]}


ERRORS = {
    "to_refuses": (404, "in ensemble 'to_refuses', step 1 (model 'refuses'): no such word"),
    "to_raises": (500, "in ensemble 'to_raises', step 1 (model 'raises'): Failed to process the request(s)"),
    "outer": (
        500,
        "in ensemble 'outer', step 0 (model 'to_raises'): in ensemble 'to_raises', step 1 (model 'raises'): ",
    ),
    "to_narrow": (
        400,
        "in ensemble 'to_narrow', step 1 (model 'narrow'): [request id: 7] unexpected shape for input 'INPUT0' for "
        "model 'narrow'. Expected [-1,4], got [1,2]. ",
    ),
}


@pytest.mark.parametrize("model", ERRORS)
def test_an_error_says_which_step_and_keeps_its_status(server: RunningServer, model: str) -> None:
    status, text = ERRORS[model]
    answer = server.infer(model, request())
    assert answer.status == status
    assert answer.error.startswith(text)
    assert server.statistics(model)["inference_stats"]["fail"]["count"] > 0


def test_a_tensor_that_does_not_fit_is_named(server: RunningServer) -> None:
    assert server.infer("to_narrow", request()).error.endswith(" In the ensemble, input 'INPUT0' is 't1'.")


def test_over_grpc_the_code_is_that_of_the_step(server: RunningServer) -> None:
    given = tritonclient.grpc.InferInput("IN", [1, 2], "INT32")
    given.set_data_from_numpy(np.array([ROW], np.int32))
    with (
        tritonclient.grpc.InferenceServerClient(server.grpc_url) as client,
        pytest.raises(InferenceServerException) as caught,
    ):
        client.infer("to_refuses", [given])
    assert caught.value.status() == "StatusCode.NOT_FOUND"


def test_a_graph_that_cannot_run_is_not_served(server: RunningServer) -> None:
    assert server.infer("impossible", request()).status == 404
    (row,) = [row for row in server.index() if row["name"] == "impossible"]
    assert row["reason"] == (
        "in ensemble impossible, ensemble tensor OUT is mapped from non-existing output NOWHERE in model same"
    )
    assert server.infer("same", numbers(ROW, [1, 2])).status == 200
