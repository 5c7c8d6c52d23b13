"""Configurations for the reference's PyTorch in Python, ``runtime: "model.py"``, on a real server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferInput

pytest.importorskip("torch", reason="the extra torch is not installed")

from support import torch_models
from support.config_texts import parameter
from support.python_models import client_of

CONFIG = f"""backend: "pytorch"
runtime: "model.py"
input [ {{ name: "left" data_type: TYPE_FP32 dims: [ 3 ] }}, {{ name: "right" data_type: TYPE_FP32 dims: [ 3 ] }} ]
output [ {{ name: "difference" data_type: TYPE_FP32 dims: [ 3 ] }} ]
instance_group [ {{ kind: KIND_CPU }} ]
{parameter("NUM_THREADS", "1")} {parameter("NUM_INTEROP_THREADS", "1")}
"""
SUBTRACT = """
import torch

class Subtract(torch.nn.Module):
    def forward(self, left, right):
        return left - right
"""


def test_modules_and_scripts_are_served(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    for name in ("module", "script"):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(CONFIG)
    (repository / "module" / "1" / "model.py").write_text(SUBTRACT)
    torch_models.save(repository / "script" / "1" / "model.pt", torch_models.Subtract())
    inputs = [InferInput(name, [3], "FP32") for name in ("left", "right")]
    inputs[0].set_data_from_numpy(np.array([5, 6, 7], np.float32))
    inputs[1].set_data_from_numpy(np.array([1, 2, 3], np.float32))
    with client_of(repository, tmp_path / "log") as client:
        for name in ("module", "script"):
            assert client.grpc.infer(name, inputs).as_numpy("difference").tolist() == [4, 4, 4]
    assert "has no effect" not in (tmp_path / "log").read_text()
