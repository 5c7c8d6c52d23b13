"""Models of frameworks other than ONNX Runtime that front-end processes run themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.testing import RunningServer, write_model
from support.front_processes import ask, await_replicas, front_requests, one_connection_each, served

ROWS = np.random.default_rng(5).standard_normal((6, 4)).astype(np.float32)
LOAD_S = 200.0
"""The longest load on a busy machine, with the import of the framework in three processes."""
TWO = "instance_group [ { kind: KIND_CPU count: 2 } ]"
Outputs = np.ndarray[Any, Any]


def network(platform: str) -> str:
    return (
        f'{platform} max_batch_size: 8 {TWO} input [ {{ name: "X" data_type: TYPE_FP32 dims: [ 4 ] }} ] '
        f'output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ 3 ] }} ]'
    )


CONFIGS = {
    "pytorch": network('platform: "pytorch_libtorch"'),
    "openvino": network('backend: "openvino"'),
    "tensorflow": network('platform: "tensorflow_savedmodel"'),
    "fil": f'backend: "fil" max_batch_size: 8 {TWO} input [ {{ name: "input__0" data_type: TYPE_FP32 dims: [ 4 ] }} ] '
    'output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 1 ] } ] parameters { key: "model_type" value { '
    'string_value: "xgboost_json" } }',
}


def write_pytorch(version: Path, seed: int) -> Outputs:
    import torch

    from support.torch_models import save

    torch.manual_seed(seed)
    module = torch.nn.Linear(4, 3)
    save(version / "model.pt", module, torch.zeros(1, 4))
    found: Outputs = module(torch.from_numpy(ROWS)).detach().numpy()
    return found


def write_openvino(version: Path, seed: int) -> Outputs:
    from support import openvino_models

    # Called directly, since OpenVINO computes with 16 bits where the processor can.
    file = openvino_models.save(version / "model.xml", openvino_models.linear(weight=float(seed)))
    return openvino_models.run(file, {"X": ROWS})["Y"]


def write_tensorflow(version: Path, seed: int) -> Outputs:
    import tensorflow as tf

    weights = np.full((4, 3), seed, np.float32)
    module = tf.Module()
    module.call = tf.function(
        lambda X: {"Y": tf.linalg.matmul(X, weights)}, [tf.TensorSpec((None, 4), tf.float32, "X")]
    )
    tf.saved_model.save(module, str(version / "model.savedmodel"), {"serving_default": module.call})
    return ROWS @ weights


def write_fil(version: Path, seed: int) -> Outputs:
    from support.forest_models import ROWS as TRAINED
    from support.forest_models import xgboost_model

    booster = xgboost_model("reg:squarederror", TRAINED[:, 0] * seed)
    booster.save_model(version / "xgboost.json")
    found: Outputs = booster.inplace_predict(ROWS).reshape(-1, 1)
    return found


WRITERS: dict[str, Callable[[Path, int], Outputs]] = {
    "pytorch": write_pytorch,
    "openvino": write_openvino,
    "tensorflow": write_tensorflow,
    "fil": write_fil,
}
MODULES = {"pytorch": "torch", "openvino": "openvino", "tensorflow": "tensorflow", "fil": "xgboost"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replicas") / "models"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[RunningServer]:
    with served(models, models.parent / "log", "--model-control-mode=explicit") as running:
        yield running


def control(server: RunningServer, act: str, model: str) -> None:
    with server.connect() as connection:
        connection.settimeout(LOAD_S)
        answer = ask(connection, f"/v2/repository/models/{model}/{act}", {})
        assert answer.status == 200, answer.body


def outputs(connection: Any, model: str) -> Outputs:
    name = "input__0" if model == "fil" else "X"
    given = {"name": name, "datatype": "FP32", "shape": list(ROWS.shape), "data": ROWS.tolist()}
    answer = ask(connection, f"/v2/models/{model}/infer", {"inputs": [given]})
    assert answer.status == 200, answer.body
    found = answer.json()["outputs"][0]
    return np.array(found["data"], np.float32).reshape(found["shape"])


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("model", WRITERS)
def test_front_ends_run_models_of_a_framework(server: RunningServer, models: Path, model: str) -> None:
    """They give its outputs, those of a changed model after a reload, and none after an unload."""
    pytest.importorskip(MODULES[model], reason=f"{MODULES[model]} is not installed")
    folder = write_model(models, model, CONFIGS[model])
    seen = []
    for seed in (1, 2):
        seen.append(WRITERS[model](folder / "1", seed))
        control(server, "load", model)
        await_replicas(server, {model: 2}, LOAD_S)
        before = front_requests(server)["run"]
        with one_connection_each(server) as connections:
            for connection in connections:
                np.testing.assert_allclose(outputs(connection, model), seen[-1], rtol=1e-4, atol=1e-5)
        assert front_requests(server)["run"] == before + 2
    assert not np.allclose(*seen)
    control(server, "unload", model)
    with one_connection_each(server) as connections:
        path = f"/v2/models/{model}/infer"
        assert [ask(connection, path, {"inputs": []}).status for connection in connections] == [404, 404]
