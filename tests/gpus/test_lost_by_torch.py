"""Embeddings of PyTorch on a real GPU that get an index beyond their table, which only the GPU itself finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.testing import HttpResponse, RunningServer, serving, wait_until
from support.config_texts import parameters
from support.gpu_machine import lacking

if reason := lacking("torch"):
    pytest.skip(reason, allow_module_level=True)

import torch

if not torch.cuda.is_available():
    pytest.skip("the installed torch finds no GPU", allow_module_level=True)

from support import gpu_models, torch_models
from support.served_models import tensor

SHAPES = f"input [ {tensor('index', 'TYPE_INT64', '1')} ] output [ {tensor('y', 'TYPE_FP32', '3')} ]\n"
PYTHON = """
import torch
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.table = torch.nn.Embedding(4, 3).to("cuda:0")

    def execute(self, requests):
        responses = []
        for request in requests:
            with torch.inference_mode():
                index = torch.from_numpy(request.inputs()[0].as_numpy())
                y = self.table(index.to("cuda:0")).squeeze(1).cpu().numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", y)]))
        return responses
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    text = f'backend: "pytorch" default_model_filename: "model.pt" max_batch_size: 8 {SHAPES}{gpu_models.ON_GPU}'
    for name, more in {"thread": "", "process": parameters(execution="process")}.items():
        torch_models.save(gpu_models.write(tmp_path / "models", name, text + more, "model.pt"), gpu_models.LooksUp())
    text = f'backend: "python" max_batch_size: 8 {SHAPES}{gpu_models.ON_GPU}'
    gpu_models.write(tmp_path / "models", "python", text, "model.py").write_text(PYTHON)
    with serving(tmp_path / "log", tmp_path / "models", start_s=120) as running:
        yield running


def ask(server: RunningServer, model: str, index: int) -> HttpResponse:
    given = {"name": "index", "datatype": "INT64", "shape": [1, 1], "data": [index]}
    return server.infer(model, {"inputs": [given]})


@pytest.mark.parametrize("model", ["process", "python"])
def test_a_process_is_replaced(server: RunningServer, model: str) -> None:
    assert ask(server, model, 3).status == 200
    lost = ask(server, model, 99)
    assert lost.status in (500, 503), lost.body
    assert "device-side assert triggered" in lost.json()["error"]
    wait_until(lambda: ask(server, model, 3).status == 200, 60, "another process runs the model")
    assert ask(server, "thread", 3).status == 200
    assert server.get("/v2/health/live").status == server.get("/v2/health/ready").status == 200


def test_a_server_says_that_it_needs_a_restart(server: RunningServer) -> None:
    assert ask(server, "thread", 3).status == 200
    for index in (99, 3):
        lost = ask(server, "thread", index)
        assert lost.status == 503
        assert "GPU 0 (device-side assert triggered) is lost to its process" in lost.json()["error"]
    assert server.get("/v2/health/live").status == server.get("/v2/health/ready").status == 400
    # They have their own way to the GPU.
    assert ask(server, "process", 3).status == ask(server, "python", 3).status == 200
