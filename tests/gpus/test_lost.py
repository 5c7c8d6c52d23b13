"""A process that has lost its GPU, as after an index beyond a table. The driver is a library that the test compiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from naiad.testing import HttpResponse, RunningServer, server_environment, serving, wait_until, write_model
from support.config_texts import parameters
from support.driver_libraries import asked, needs_compiler, write_driver

pytestmark = needs_compiler

LOOK = """
import ctypes
from naiad.worker.runtime.lost_gpu import lost_gpu
error = RuntimeError("CUDA error: device-side assert triggered")
print(lost_gpu(error) or "not loaded")
library = ctypes.CDLL("libcuda.so.1")
print(lost_gpu(error) or "nothing lost")
library.cuLaunchKernel()
print(lost_gpu(ValueError("of the model")) or "not asked")
class Wordless(Exception):
    def __str__(self):
        raise TypeError
print(lost_gpu(Wordless()) or "no text")
print(lost_gpu(error))
"""

# Fails a kernel where it is given 9, as torch reports it, and where it is given 8, which it responds itself.
MODEL = """
import ctypes
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = request.inputs()[0].as_numpy()
            if x.flat[0] in (8, 9):
                ctypes.CDLL("libcuda.so.1").cuLaunchKernel()
                error = "CUDA error: device-side assert triggered"
                if x.flat[0] == 9:
                    raise RuntimeError(error)
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError(error)))
                continue
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return responses
"""
SHAPES = 'input { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } '
LOST = "GPU 0 (device-side assert triggered) is lost to "


def test_a_lost_gpu_is_found_where_the_process_uses_it(tmp_path: Path) -> None:
    found = asked(LOOK, write_driver(tmp_path / "driver"))
    assert found.splitlines() == [
        "not loaded",
        "nothing lost",
        "not asked",
        "no text",
        LOST.removesuffix(" is lost to "),
    ]


def test_no_library_no_loss(tmp_path: Path) -> None:
    code = 'from naiad.worker.runtime.lost_gpu import lost_gpu\nprint(lost_gpu(RuntimeError("CUDA error")) or "none")'
    assert asked(code, None) == "none"


def started(tmp_path: Path, *options: str) -> AbstractContextManager[RunningServer]:
    """A server with a model in a worker on the GPU, one in a thread there, and one in a thread on the processor."""
    configs = {
        "process": "instance_group [ { kind: KIND_GPU gpus: [ 0 ] count: 1 } ]",
        "thread": "instance_group [ { kind: KIND_GPU gpus: [ 0 ] count: 1 } ]" + parameters(execution="thread"),
        "processor": "instance_group [ { kind: KIND_CPU count: 1 } ]" + parameters(execution="thread"),
    }
    for name, group in configs.items():
        folder = write_model(tmp_path / "models", name)
        (folder / "config.pbtxt").write_text('backend: "python" ' + SHAPES + group)
        (folder / "1" / "model.py").write_text(MODEL)
    environment = {**server_environment(), "LD_LIBRARY_PATH": str(write_driver(tmp_path / "driver"))}
    return serving(tmp_path / "log", tmp_path / "models", *options, env=environment)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with started(tmp_path) as running:
        yield running


def ask(server: RunningServer, model: str, value: float) -> HttpResponse:
    return server.infer(model, {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [value]}]})


@pytest.mark.slow
@pytest.mark.parametrize("value", [8, 9], ids=["response", "exception"])
def test_a_worker_that_lost_the_gpu_is_replaced(server: RunningServer, value: float) -> None:
    assert ask(server, "process", 1).status == 200
    lost = ask(server, "process", value)
    assert lost.status == 500 and "device-side assert triggered" in lost.json()["error"]
    said = LOST + "model instance 'process_0_0', whose process ends"
    wait_until(lambda: said in server.log, 30, "the worker ends")
    wait_until(lambda: ask(server, "process", 2).status == 200, 30, "another worker runs the model")
    assert server.get("/v2/health/live").status == server.get("/v2/health/ready").status == 200


@pytest.mark.slow
@pytest.mark.parametrize("value", [8, 9], ids=["response", "exception"])
def test_a_server_that_lost_the_gpu_says_that_it_needs_a_restart(server: RunningServer, value: float) -> None:
    assert ask(server, "thread", 1).status == 200
    lost = ask(server, "thread", value)
    assert lost.status == 503
    assert lost.json()["error"].startswith(f"model 'thread' failed: {LOST}its process, which needs a restart")
    assert server.get("/v2/health/live").status == server.get("/v2/health/ready").status == 400
    assert LOST + "this process, which needs a restart" in server.get("/v2/health/ready?verbose=true").body.decode()
    assert server.get("/v2/models/thread/ready").status == 400
    # What needs no GPU goes on.
    for model in ("processor", "process"):
        assert server.get(f"/v2/models/{model}/ready").status == 200
        assert ask(server, model, 1).status == 200
    assert server.log.count(LOST + "process ") == 1


@pytest.mark.slow
def test_a_server_that_lost_the_gpu_can_end(tmp_path: Path) -> None:
    with started(tmp_path, "--on-gpu-loss=exit") as server:
        assert ask(server, "thread", 9).status == 503
        assert server.wait_exit() == 1
        assert "lost GPU: Waiting for in-flight requests to complete" in server.log
