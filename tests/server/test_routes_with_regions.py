"""Routes of models whose requests have tensors in regions of clients: whatever answers, it says so and fills them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.http

from naiad.testing import RunningServer, serving, wait_until
from support.served_models import write_model
from support.shared_regions import PROTOCOLS, Caller, memory
from support.versioned_models import ALL, graph, write_python

TENSORS = """input [ { name: "X" data_type: TYPE_FP32 dims: [ -1, 2 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1, 2 ] } ]"""
PROCESS = 'parameters { key: "execution" value { string_value: "process" } }'
MODELS = ("python", "thread", "process")
ROUTES = (
    {"split": {"1": 1, "2": 1}, "shadow": None},
    {"split": {"1": 1}, "shadow": {"version": "2"}},
    {"split": {"1": 1, "2": 1}, "shadow": {"version": "2", "fraction": 0.5}},
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("routed")
    write_python(folder / "models", "python", 2)
    for name in MODELS[1:]:
        for version in (1, 2):
            write_model(folder / "models", name, "", (version,), graph(version))
        more = PROCESS if name == "process" else ""
        (folder / "models" / name / "config.pbtxt").write_text(f'backend: "onnxruntime" {ALL} {TENSORS} {more}')
    with serving(folder / "log", folder / "models", "--allow-client-shm=true") as running:
        yield running
        assert "Traceback" not in running.log
        assert "has ended" not in running.log


def shape_of(model: str, rows: int) -> list[int]:
    return [2 * rows] if model == "python" else [rows, 2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("rows", [2, 50_000])
@pytest.mark.parametrize("model", MODELS)
def test_a_region_has_what_the_version_gave_that_the_answer_names(
    server: RunningServer, protocol: str, model: str, rows: int
) -> None:
    caller, ones = Caller(server, protocol), np.ones(shape_of(model, rows), np.float32)
    with memory(ones.nbytes) as given, memory(ones.nbytes) as wanted:
        given.put(ones)
        caller.register("in", given)
        caller.register("out", wanted)
        for routes in ROUTES:
            assert server.post(f"/v2/models/{model}/routes", routes).status == 200
            for _ in range(6):
                wanted.put(np.zeros_like(ones))
                inputs = [caller.input("X", "FP32", list(ones.shape), "in", ones.nbytes)]
                outputs = [caller.output("Y", "out", ones.nbytes)]
                answer = caller.client.infer(model, inputs, outputs=outputs).get_response()
                version = int(answer["model_version"] if protocol == "http" else answer.model_version)
                np.testing.assert_array_equal(wanted.get(np.float32, list(ones.shape)), version * ones)
            if routes["shadow"]:
                seen = f"/v2/models/{model}/routes"
                wait_until(
                    lambda seen=seen: server.get(seen).json()["shadow_statistics"]["in_flight"] == 0, 10, "all copied"
                )
                assert server.get(seen).json()["shadow_statistics"]["errors"] == 0
                assert server.get(seen).json()["shadow_statistics"]["compared"] >= 3
        caller.client.unregister_system_shared_memory()
        caller.client.close()


def test_classes_of_large_outputs_beside_a_shadow(server: RunningServer) -> None:
    routes = {"split": {"1": 1}, "shadow": {"version": "2"}}
    assert server.post("/v2/models/thread/routes", routes).status == 200
    given = tritonclient.http.InferInput("X", [500_000, 2], "FP32")
    given.set_data_from_numpy(np.arange(1_000_000, dtype=np.float32).reshape(500_000, 2))
    wanted = tritonclient.http.InferRequestedOutput("Y", class_count=1)
    with tritonclient.http.InferenceServerClient(server.url) as client:
        (best,) = client.infer("thread", [given], outputs=[wanted]).as_numpy("Y").reshape(-1)
    assert best.split(b":")[1] == b"999999"
