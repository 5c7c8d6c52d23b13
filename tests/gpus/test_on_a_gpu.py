"""A server with models on a real GPU: PyTorch in each form, ONNX Runtime and Python, and tensors that stay there."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from naiad.gpus.driver import gpus
from naiad.testing import RunningServer, run_to_end, serving, wait_until
from support.config_texts import parameters
from support.gpu_machine import lacking

if reason := lacking("torch"):
    pytest.skip(reason, allow_module_level=True)

import torch

if not torch.cuda.is_available():
    pytest.skip("the installed torch finds no GPU", allow_module_level=True)

from support import gpu_models, torch_models

SERVER_S = 120.0
"""The longest time until such a server is ready: each process imports torch and makes a context on the GPU."""


def has_onnx() -> bool:
    """Whether ONNX Runtime is installed with CUDA."""
    try:
        import onnxruntime
    except ImportError:
        return False
    return "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def models_of() -> dict[str, float]:
    """What each model makes of 3."""
    found = {"script": 6.0, "eager": 6.0, "exported": 6.0, "adds": 4.0, "adds_in_thread": 4.0, "adds_in_process": 4.0}
    return {**found, "onnx": 6.0} if has_onnx() else found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("gpu")
    gpu_models.write_torch(folder / "models")
    gpu_models.write_python(folder / "models")
    if has_onnx():
        gpu_models.write_onnx(folder / "models")
        gpu_models.write_chain(folder / "models", "chain_onnx", "script", "onnx", "adds", "onnx")
    gpu_models.write_chain(folder / "models", "chain", "script", "adds", "exported", "adds")
    gpu_models.write_chain(folder / "models", "chain_python", "script", "adds_in_thread", "adds")
    gpu_models.write_chain(folder / "models", "chain_process", "script", "adds_in_process", "adds")
    options = ("--exit-on-error=false", "--metrics-interval-ms=100", "--allow-client-shm=true")
    with serving(folder / "log", folder / "models", *options, start_s=SERVER_S) as running:
        yield running


def ask(server: RunningServer, model: str, value: float, rows: int = 1, name: str = "x") -> float:
    """What a model makes of a tensor of one value; all of the answer must be one value as well."""
    data = [value] * (3 * rows)
    given = {"name": name, "datatype": "FP32", "shape": [rows, 3], "data": data}
    response = server.infer(model, {"inputs": [given]})
    assert response.status == 200, response.body
    (output,) = response.json()["outputs"]
    assert output["shape"] == [rows, 3]
    assert len(set(output["data"])) == 1
    return float(output["data"][0])


def device_tensors(server: RunningServer) -> dict[str, int]:
    """How many tensors between steps stayed, and how many were copied."""
    found = re.findall(r'naiad_device_tensors(?:_total)?\{handling="(\w+)"\} (\d+)', server.metrics_page())
    return {"resident": 0, "copied": 0, **{name: int(count) for name, count in found}}


@pytest.mark.parametrize("model", ["script", "eager", "exported", "adds", "adds_in_thread", "adds_in_process", "onnx"])
def test_a_model_runs_on_the_gpu(server: RunningServer, model: str) -> None:
    if model == "onnx" and not has_onnx():
        pytest.skip("the installed onnxruntime is not onnxruntime-gpu")
    rows = {row["name"]: row for row in server.index()}
    assert rows[model]["state"] == "READY", rows[model]
    (group,) = server.get(f"/v2/models/{model}/config").json()["instance_group"]
    assert (group["kind"], group["gpus"]) == ("KIND_GPU", [0])
    for count in (1, 2, 8):
        assert ask(server, model, 3.0, count) == models_of()[model]
    uuid = gpus()[0].uuid
    assert f'nv_inference_count{{gpu_uuid="GPU-{uuid}",model="{model}",version="1"}}' in server.metrics_page()


@pytest.mark.parametrize(
    ("chain", "expected", "resident"),
    [("chain", 15.0, 3), ("chain_python", 8.0, 2), ("chain_onnx", 26.0, 3), ("chain_process", 8.0, 0)],
)
def test_tensors_stay_on_the_gpu_between_steps(
    server: RunningServer, chain: str, expected: float, resident: int
) -> None:
    if chain == "chain_onnx" and not has_onnx():
        pytest.skip("the installed onnxruntime is not onnxruntime-gpu")
    ask(server, chain, 1.0, name="IN")
    before = device_tensors(server)
    assert ask(server, chain, 3.0, name="IN") == expected
    after = device_tensors(server)
    assert {name: after[name] - before[name] for name in after} == {"resident": resident, "copied": 0}


@pytest.mark.parametrize("chain", ["chain", "chain_python", "chain_onnx"])
def test_concurrent_requests_do_not_mix(server: RunningServer, chain: str) -> None:
    """Each caller has values of its own: a tensor that is read before it is complete shows."""
    if chain == "chain_onnx" and not has_onnx():
        pytest.skip("the installed onnxruntime is not onnxruntime-gpu")
    zero, one = (ask(server, chain, value, name="IN") for value in (0.0, 1.0))
    failures: list[BaseException] = []

    def call(index: int) -> None:
        try:
            for n in range(40):
                value = float(1000 * index + n)
                assert ask(server, chain, value, 1 + n % 4, "IN") == zero + (one - zero) * value
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(index,)) for index in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures[0]


def test_the_metrics_show_the_gpu(server: RunningServer) -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    pynvml.nvmlInit()
    total = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total
    label = f'{{gpu_uuid="GPU-{gpus()[0].uuid}"}}'
    wait_until(lambda: f"nv_gpu_memory_total_bytes{label} {total}\n" in server.metrics_page(), 20, "NVML is read")
    page = server.metrics_page()
    for name in ("utilization", "power_usage", "power_limit", "memory_used_bytes"):
        found = re.search(rf"nv_gpu_{name}{re.escape(label)} (\S+)", page)
        assert found is not None, name
        assert float(found[1]) >= 0
    assert f"nv_energy_consumption{label}" in page


def test_an_archive_that_is_to_be_compiled(tmp_path: Path) -> None:
    """Compiled for the GPU, or as it is where the machine cannot compile for it; never the end of the server."""
    compiled = gpu_models.ON_GPU + parameters(COMPILE="true")
    gpu_models.write_exported(tmp_path / "models", "exported", compiled)
    options = (f"--backend-config=pytorch,compile-cache={tmp_path / 'cache'}",)
    with serving(tmp_path / "log", tmp_path / "models", *options, start_s=SERVER_S) as server:
        for rows in (1, 2, 8):
            assert ask(server, "exported", 3.0, rows) == 6.0
        assert ("it runs as it is, not compiled" in server.log) != ("compiled model.pt2 in" in server.log)


@pytest.mark.serial
def test_an_unload_gives_the_memory_back(tmp_path: Path) -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def used_mib() -> float:
        return float(pynvml.nvmlDeviceGetMemoryInfo(handle).used) / (1 << 20)

    text = f'backend: "pytorch" default_model_filename: "model.pt"\n{gpu_models.SHAPES}{gpu_models.ON_GPU}'
    for name, mib in (("small", 1), ("large", 1024)):
        torch_models.save(gpu_models.write(tmp_path / "models", name, text, "model.pt"), gpu_models.Large(mib))
    options = ("--model-control-mode=explicit", "--load-model=small")
    with serving(tmp_path / "log", tmp_path / "models", *options, start_s=SERVER_S) as server:
        assert ask(server, "small", 3.0) == 3.0
        before = used_mib()
        for _ in range(3):
            assert server.post("/v2/repository/models/large/load", {}).status == 200
            assert ask(server, "large", 3.0) == 3.0
            assert used_mib() - before > 900
            assert server.post("/v2/repository/models/large/unload", {}).status == 200
            wait_until(lambda: used_mib() - before < 100, 20, "the memory is the driver's again")
        assert ask(server, "small", 3.0) == 3.0


def test_a_gpu_that_is_too_full_takes_no_model(tmp_path: Path) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    gpu_models.write_python(tmp_path / "models")
    options = ("--model-load-gpu-limit=0:0.0", "--load-model=adds_in_process", "--model-control-mode=explicit")
    code, log = run_to_end(tmp_path / "log", tmp_path / "models", *options)
    assert code == 1
    assert "memory limit set for GPU 0 has exceeded, model loading is rejected" in log


def test_a_gpu_of_too_small_a_capability_is_left_out(tmp_path: Path) -> None:
    gpu_models.write_python(tmp_path / "models")
    options = ("--min-supported-compute-capability=99", "--load-model=adds_in_process", "--model-control-mode=explicit")
    code, log = run_to_end(tmp_path / "log", tmp_path / "models", *options)
    assert code == 1
    assert gpus()[0].name in log


def test_regions_in_the_memory_of_the_gpu(server: RunningServer) -> None:
    """As the reference's own client makes them."""
    pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    http = pytest.importorskip("tritonclient.http", reason="tritonclient is not installed")
    from tritonclient.utils import InferenceServerException
    from tritonclient.utils import cuda_shared_memory as regions

    source, target = (regions.create_shared_memory_region(name, 48, 0) for name in ("source", "target"))
    client = http.InferenceServerClient(server.url)
    try:
        x = np.arange(12, dtype=np.float32).reshape(4, 3)
        regions.set_shared_memory_region(source, [x])
        for name, region in (("source", source), ("target", target)):
            client.register_cuda_shared_memory(name, regions.get_raw_handle(region), 0, 48)
        assert {row["name"] for row in client.get_cuda_shared_memory_status()} == {"source", "target"}
        with pytest.raises(InferenceServerException, match=r"its memory has \d+ bytes, found a 'byte_size' of"):
            client.register_cuda_shared_memory("long", regions.get_raw_handle(source), 0, 1 << 40)
        with pytest.raises(InferenceServerException, match="failed to register CUDA shared memory region"):
            client.register_cuda_shared_memory("bad", base64.b64encode(b"A" * 64), 0, 48)
        with pytest.raises(InferenceServerException, match="there is no device 7"):
            client.register_cuda_shared_memory("far", regions.get_raw_handle(source), 7, 48)
        given = http.InferInput("x", [4, 3], "FP32")
        given.set_shared_memory("source", 48)
        wanted = http.InferRequestedOutput("y")
        wanted.set_shared_memory("target", 48)
        for model in ("script", "adds_in_process"):
            client.infer(model, [given], outputs=[wanted])
            made = regions.get_contents_as_numpy(target, np.float32, [4, 3])
            assert made.tolist() == (x * 2 if model == "script" else x + 1).tolist()
        client.unregister_cuda_shared_memory()
        assert client.get_cuda_shared_memory_status() == []
    finally:
        client.close()
        for region in (source, target):
            regions.destroy_shared_memory_region(region)


def test_perf_through_regions_of_the_gpu(server: RunningServer, tmp_path: Path) -> None:
    """Tensors in the memory of the GPU on both ways, as `naiad perf --shared-memory=cuda` makes them."""
    import subprocess
    import sys

    options = ["--shared-memory=cuda", "--concurrency-range", "2", "--measurement-interval", "500"]
    options += ["--output-shared-memory-size", "12", "-u", server.url, "-f", str(tmp_path / "report.csv")]
    command = [sys.executable, "-m", "naiad", "perf", "-m", "script", "-b", "1", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (tmp_path / "report.csv").read_text().count("\n") >= 2
