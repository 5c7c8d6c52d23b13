"""Padded and ragged batches together with what else a server does: shared memory, the cache, order, traces, warm-up,
processes, reloads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.testing import RunningServer, serving
from support.served_models import tensor, write_model
from support.shared_regions import PROTOCOLS, Caller, calling, memory

GRAPH = """<ir_version: 8, opset_import: ["": 17]>
plus_one (float[b, n] X, float[b, n] M) => (float[b, n] Y) {
  Y = Add (X, M)
}"""
FLAT_GRAPH = """<ir_version: 8, opset_import: ["": 17]>
doubles (float[n] X) => (float[n] Y) {
  Y = Add (X, X)
}"""
IO = f"input [ {tensor('X', 'TYPE_FP32', '-1')} ] output [ {tensor('Y', 'TYPE_FP32', '-1')} ]\n"
RAGGED_IO = IO.replace("dims", "allow_ragged_batch: true dims", 1)
BATCHES = 'platform: "onnxruntime_onnx" max_batch_size: 8 instance_group [ { kind: KIND_CPU count: 2 } ]\n'
QUEUE = "dynamic_batching { max_queue_delay_microseconds: 2000 }\n"
ORDERED = "dynamic_batching { max_queue_delay_microseconds: 2000 preserve_ordering: true }\n"
PADS = """
parameters { key: "batching.X" value { string_value: "pad(7, to=buckets(4, 64, 40000), mask=M, mask_type=FP32)" } }
parameters { key: "batching.Y" value { string_value: "unpad(X)" } }
"""
PROCESS = 'parameters { key: "execution" value { string_value: "process" } }\n'
PADDED = BATCHES + IO + PADS
RAGGED = BATCHES + QUEUE + RAGGED_IO
SCATTERED = 'batch_output [ { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "Y" source_input: "X" } ]\n'
MODELS = {
    "padded": PADDED + QUEUE,
    "padded_alone": PADDED,
    "padded_cached": PADDED + QUEUE + "response_cache { enable: true }",
    "padded_in_order": PADDED + ORDERED,
    "padded_process": PADDED + QUEUE + PROCESS,
}


def expected(model: str, x: np.ndarray) -> np.ndarray:
    return x + x if model == "ragged" else x + 1


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("together") / "models"


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[RunningServer]:
    folder = models.parent
    for name, config in MODELS.items():
        write_model(models, name, config, graph=GRAPH)
    write_model(models, "ragged", RAGGED + SCATTERED, graph=FLAT_GRAPH)
    arguments = [
        "--allow-client-shm=true",
        "--auto-warmup",
        "--cache-config=local,size=16777216",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--trace-config=level=TENSORS",
        "--trace-config=rate=1",
        f"--trace-config=triton,file={folder / 'trace.json'}",
    ]
    with serving(folder / "log", "--model-repository", models, *arguments) as running:
        yield running
        assert "Exception in callback" not in running.log
        assert "Traceback" not in running.log
        running.process.terminate()
        assert running.wait_exit() == 0
    shapes = {t["tensor"]["shape"] for t in json.loads((folder / "trace.json").read_text()) if "tensor" in t}
    # Tensors of traces are those of the callers, without padding.
    assert "1,3" in shapes
    assert not {"1,64", "2,64", "3,64"} & shapes


@pytest.fixture(params=PROTOCOLS)
def caller(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Caller]:
    with calling(server, request.param) as made:
        yield made


@pytest.mark.parametrize("model", [*MODELS, "ragged"])
@pytest.mark.parametrize("columns", [3, 30_000])
def test_tensors_in_regions(caller: Caller, model: str, columns: int) -> None:
    row = np.random.default_rng(columns).random((1, columns), np.float32)
    with memory(row.nbytes) as given, memory(row.nbytes) as wanted:
        given.put(row)
        caller.register("in", given)
        caller.register("out", wanted)
        inputs = [caller.input("X", "FP32", [1, columns], "in", row.nbytes)]
        outputs = [caller.output("Y", "out", row.nbytes)]
        for _ in range(2):
            wanted.put(np.zeros_like(row))
            caller.client.infer(model, inputs, outputs=outputs)
            np.testing.assert_array_equal(wanted.get(np.float32, [1, columns]), expected(model, row))
        caller.client.unregister_system_shared_memory()


def ask(server: RunningServer, model: str, x: np.ndarray) -> np.ndarray:
    given = {"name": "X", "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}
    answer = server.infer(model, {"inputs": [given]})
    assert answer.status == 200, answer.body
    (found,) = answer.json()["outputs"]
    return np.array(found["data"], np.float32).reshape(found["shape"])


@pytest.mark.parametrize("model", [*MODELS, "ragged"])
def test_many_callers_with_lengths_of_their_own(server: RunningServer, model: str) -> None:
    lengths = np.random.default_rng(1).integers(1, 60, 60).tolist()

    def one(at: int) -> bool:
        x = np.full((1 + at % 3, lengths[at]), at, np.float32)
        return bool((ask(server, model, x) == expected(model, x)).all())

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(one, range(len(lengths))))


def test_what_is_too_large_for_every_bucket_is_refused(server: RunningServer) -> None:
    given: dict[str, Any] = {"name": "X", "datatype": "FP32", "shape": [1, 40_001], "data": [0.0] * 40_001}
    answer = server.infer("padded", {"inputs": [given]})
    assert answer.status == 400
    assert "input 'X' for model 'padded' has 40001 in dim 0, which is padded to one of [4, 64, 40000]" in answer.error


def test_reloads_in_between(server: RunningServer) -> None:
    done = threading.Event()

    def reload() -> None:
        for _ in range(5):
            answer = server.post("/v2/repository/models/padded/load", {})
            assert answer.status == 200, answer.body
        done.set()

    def keep_asking(at: int) -> int:
        count = 0
        while not done.is_set() or not count:
            x = np.full((1, 1 + (7 * at + count) % 50), at, np.float32)
            assert (ask(server, "padded", x) == x + 1).all()
            count += 1
        return count

    with ThreadPoolExecutor(5) as pool:
        running = pool.submit(reload)
        assert all(pool.map(keep_asking, range(4)))
        running.result()


@pytest.mark.parametrize("model", ["padded", "padded_process", "ragged"])
def test_other_instance_groups_in_place(server: RunningServer, models: Path, model: str) -> None:
    config = models / model / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 2", "count: 3"))
    assert server.post(f"/v2/repository/models/{model}/load", {}).status == 200
    server.wait_for(f"updated '{model}' version 1 in place: 3 instance(s)", 10)
    x = np.ones((1, 3), np.float32)
    with ThreadPoolExecutor(6) as pool:
        assert all((y == 2).all() for y in pool.map(lambda _: ask(server, model, x), range(30)))
