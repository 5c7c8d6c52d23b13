"""Wrong dims: the error shows both shapes, the axis that differs and the line to write; open dims fit fixed ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import pytest

from naiad.testing import HttpResponse, RunningServer, serving
from support.served_models import tensor, write_model

GRAPH = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 256, 25] X) => (float[n, 256, 25] Y) { Y = Identity (X) }"""
DIMS = {"open": "-1, -1, 25", "fixed": "-1, 256, 25", "wrong": "-1, 128, 25"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("dims")
    for name, dims in DIMS.items():
        tensors = f"input [ {tensor('X', 'TYPE_FP32', dims)} ] output [ {tensor('Y', 'TYPE_FP32', dims)} ]"
        write_model(folder / "models", name, f'platform: "onnxruntime_onnx" max_batch_size: 0 {tensors}', graph=GRAPH)
    with serving(folder / "log", folder / "models", "--exit-on-error=false") as server:
        yield server


def infer(server: RunningServer, model: str, shape: Sequence[int]) -> HttpResponse:
    given = {"name": "X", "datatype": "FP32", "shape": list(shape), "data": [0.5] * prod(shape)}
    return server.infer(model, {"inputs": [given]})


def test_open_dims_are_accepted_for_fixed_ones(server: RunningServer) -> None:
    assert infer(server, "open", [2, 256, 25]).json()["outputs"][0]["shape"] == [2, 256, 25]


def test_a_load_names_shapes_axis_and_remedy(server: RunningServer) -> None:
    (reason,) = (row["reason"] for row in server.index() if row["name"] == "wrong")
    assert "the model expects 3 dimensions (shape [-1,256,25])" in reason and "shape [-1,128,25])" in reason
    assert "axis 1 is 128 where the model has 256; write dims: [ -1, 256, 25 ]" in reason


def test_a_request_is_told_both_shapes(server: RunningServer) -> None:
    response = infer(server, "fixed", [1, 255, 25])
    assert response.status == 400
    assert "Expected [-1,256,25], got [1,255,25]" in response.error


def test_a_request_beyond_what_the_configuration_knows_is_told_the_axis(server: RunningServer) -> None:
    response = infer(server, "open", [1, 255, 25])
    assert "index: 1 Got: 255 Expected: 256" in response.error
